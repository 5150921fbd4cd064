"""What to do when messages of one saga instance get in each other's way: try again, patiently and not all at once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from rowpost.errors import Deadlock, SagaConflict
from rowpost.recoverability.policy import Decision, Failure, Recoverability

__all__ = ["CONFLICTS", "ConflictPolicy"]

#: errors that the next attempt may not meet (LockTimeout is a Deadlock)
CONFLICTS = (SagaConflict, Deadlock)
# The wait of the tenth attempt is the longest.
_STEPS = 10


@dataclass(frozen=True, slots=True)
class ConflictPolicy:
    """A policy for Recoverability: conflicts are tried again at once, many times; everything else as `otherwise` says.

        Endpoint("Sales", recoverability=Recoverability(policy=ConflictPolicy()))

    Before each new attempt at a conflict the worker waits a random time, up to `jitter` times the number of attempts, so
    that those who met do not meet again.

    Args:
        retries: attempts at a message whose error is a conflict; then it is treated as `otherwise` says.
        jitter: see above; the tenth wait is the longest.
        otherwise: how all other errors are treated.
    """

    retries: int = 100
    jitter: timedelta = timedelta(milliseconds=5)
    otherwise: Recoverability = field(default_factory=Recoverability)
    sleep: Callable[[float], None] = time.sleep
    uniform: Callable[[float, float], float] = random.uniform

    def __call__(self, failure: Failure) -> Decision | timedelta:
        """What to do with a failed message."""
        if isinstance(failure.error, CONFLICTS) and failure.attempts <= self.retries:
            self.sleep(self.uniform(0.0, self.jitter.total_seconds() * min(failure.attempts, _STEPS)))
            return Decision.RETRY
        decision, delay = self.otherwise.decide(failure)
        return delay if decision is Decision.DELAY else decision
