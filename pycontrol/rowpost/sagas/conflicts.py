"""A recoverability policy for conflicts between messages of one saga instance: retry often, at random times."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from rowpost.errors import Deadlock, SagaConflict
from rowpost.recoverability.discard import Discard
from rowpost.recoverability.policy import Decision, Failure, MoveTo, Recoverability

__all__ = ["CONFLICTS", "ConflictPolicy"]

#: errors that may not occur in the next attempt (LockTimeout is a subclass of Deadlock)
CONFLICTS = (SagaConflict, Deadlock)
# The wait grows up to this attempt.
_LONGEST_WAIT_ATTEMPT = 10


@dataclass(frozen=True, slots=True)
class ConflictPolicy:
    """A policy for Recoverability: conflicts are retried many times at once; other errors are treated by `otherwise`.

        Endpoint("Sales", recoverability=Recoverability(policy=ConflictPolicy()))

    Before each retry of a conflict, the worker waits a random time of up to `jitter` times the number of attempts, so
    that the same messages do not conflict again.

    Args:
        retries: maximum number of retries of a message whose error is a conflict; then `otherwise` applies.
        jitter: see above; the wait stops growing at the tenth attempt.
        otherwise: applies to all other errors.
    """

    retries: int = 100
    jitter: timedelta = timedelta(milliseconds=5)
    otherwise: Recoverability = field(default_factory=Recoverability)
    sleep: Callable[[float], None] = time.sleep
    uniform: Callable[[float, float], float] = random.uniform

    def __call__(self, failure: Failure) -> Decision | timedelta | Discard | MoveTo:
        """Decide what to do with a failed message."""
        if isinstance(failure.error, CONFLICTS) and failure.attempts <= self.retries:
            self.sleep(self.uniform(0.0, self.jitter.total_seconds() * min(failure.attempts, _LONGEST_WAIT_ATTEMPT)))
            return Decision.RETRY
        treatment = self.otherwise.decide(failure)
        if treatment.error_queue is not None:
            return MoveTo(treatment.error_queue)
        return treatment.discard or (treatment.delay if treatment.decision is Decision.DELAY else treatment.decision)
