"""Several messages in one transaction, while a backlog waits and their handlers are quick.

    begin (sealed) + receive_messages -> each handler in turn -> all that they send + commit        two round trips

Nothing is set aside while all goes well: no savepoints. Where anything fails (a handler, a statement, the commit) the
whole transaction rolls back, the message that failed goes alone, as if there had never been a batch (pipeline.py), and
those before it go together once more. So a failing message takes no neighbour with it, nothing of its work survives, and its attempt is counted once. What
neighbours did in the database is undone and done again; what they did elsewhere is done twice, as after a crash.

The transaction is sealed (dialects): a handler that commits would commit the removal of messages that nobody handled.

Only messages in the mode sends_atomic_with_receive travel so. In `none` and `receive_only` a removal or a send commits
apart from the rest, and a batch would lose or repeat more of them than the mode says; in `transaction_scope` each
message decides which databases take part.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rowpost.errors import DatabaseUnavailable, Deadlock, MessageCorrupt, RowpostError
from rowpost.pipeline.batch_size import BatchSize
from rowpost.pipeline.pipeline import DEADLOCKED, Pipeline
from rowpost.pipeline.timings import wanted_at
from rowpost.recoverability.outcome import Kind, Outcome
from rowpost.recoverability.policy import in_words
from rowpost.recoverability.retries import roll_back
from rowpost.wire.message import Message
from rowpost.wire.operation import Call, Operation

__all__ = ["Batches"]

GONE_WELL = frozenset({Kind.HANDLED, Kind.EXPIRED})
GONE = GONE_WELL | {Kind.POISON, Kind.DELAYED, Kind.MOVED_TO_ERROR}
SUITABLE_MODE = "sends_atomic_with_receive"


@dataclass(slots=True)
class _Batch:
    """The messages of a transaction, in the queue's order, and what they have brought so far. `times`: when each was
    wanted, and when its handler began."""

    messages: list[Message]
    outcomes: list[Outcome] = field(default_factory=list)
    groups: list[list[Operation]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    times: list[tuple[str | None, float]] = field(default_factory=list)


class Batches:
    """Takes messages through a pipeline, as many in one transaction as `size` says, which it adapts."""

    def __init__(self, pipeline: Pipeline, size: BatchSize, clock: Callable[[], float] = time.perf_counter) -> None:
        self._pipeline = pipeline
        self._size = size if pipeline.transaction_mode == SUITABLE_MODE else BatchSize(1, None)
        self._clock = clock
        #: the last row version that was taken for good, by the last transaction; None where messages may have come back
        self.kept: int | None = None

    @property
    def size(self) -> int:
        """How many messages the next receive takes at most."""
        return self._size.now

    @property
    def receive_seconds(self) -> float:
        """How long the last receive took."""
        return self._pipeline.receive_seconds

    def process(self, anchor: int | None = None) -> list[Outcome]:
        """Receive and handle the oldest free messages above `anchor` (None: from the start), if any.

        Returns:
            What became of each; of one alone where that one ended the transaction: the others are back in the queue.

        Raises:
            As Pipeline.process_one.
        """
        self.kept = None
        if self._size.now > 1:
            with self._pipeline.transaction():
                return self._many(anchor)
        outcome = self._pipeline.process_one(anchor)
        if outcome.kind in GONE:
            self.kept = outcome.row_version
        if outcome.kind in GONE_WELL:
            self._size = self._size.after(1, self._pipeline.handler_seconds)
        elif outcome.kind is not Kind.EMPTY:
            self._size = self._size.after_failure(place=1)
        return [outcome]

    def _many(self, anchor: int | None) -> list[Outcome]:
        pipeline = self._pipeline
        try:
            rows = pipeline.receive_sealed(self._size.now, anchor)
        except Deadlock:
            return [DEADLOCKED]
        if not rows:
            self._size = self._size.after(0, 0.0)
            pipeline.database.rollback()
            return [pipeline.found_nothing()]
        started, batch = self._clock(), _Batch([Message(*row[:4], row[4] or b"") for row in rows])
        for message in pipeline.in_lock_order(batch.messages):
            ended = self._take(message, batch)
            if ended is not None:
                place = batch.messages.index(message) + 1
                lost = ended.kind is Kind.DEADLOCKED
                self._size = self._size.after_conflict() if lost else self._size.after_failure(place)
                return [ended]
        seconds = self._clock() - started
        if not self._commit(batch):
            self._size = self._size.after_loss(len(rows))
            return [DEADLOCKED]
        self._size = self._size.after(len(rows), seconds, sum(len(m.raw_headers) + len(m.body) for m in batch.messages))
        self.kept = batch.messages[-1].row_version
        return sorted(batch.outcomes, key=lambda outcome: outcome.row_version)

    def _take(self, message: Message, batch: _Batch) -> Outcome | None:
        """One message; the outcome of one that ended the transaction."""
        pipeline, kind, words = self._pipeline, Kind.HANDLED, None
        try:
            if message.expired:
                kind = Kind.EXPIRED
            elif not pipeline.is_control(message):
                started = time.time()
                wanted = wanted_at(message.headers)
                result = pipeline.attempt_sealed(message)
                if isinstance(result, Outcome):
                    return result
                batch.times.append((wanted, started))
                if result:
                    batch.groups.append(result)
        except MessageCorrupt as error:
            kind, words = Kind.POISON, in_words(error)
            batch.calls.append(pipeline.retries.discarding(message))
        batch.outcomes.append(Outcome(kind, message.row_version, message.id, 0 if words is None else 1, words))
        return None

    def _commit(self, batch: _Batch) -> bool:
        """All that was sent and the commit, in one round trip; False where it was rolled back."""
        pipeline = self._pipeline
        try:
            pipeline.commit_sealed(batch.groups, batch.calls + pipeline.retries.forgetting(batch.messages))
        except DatabaseUnavailable:
            raise
        except RowpostError:
            roll_back(pipeline.database)
            return False
        pipeline.retries.forgot(batch.messages)
        pipeline.stopwatch.add(batch.times, time.time())
        return True
