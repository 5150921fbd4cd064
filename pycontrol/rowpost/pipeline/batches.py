"""Handle several messages in one transaction while the queue has a backlog and handlers are fast.

    begin (commit-guarded) + receive_messages -> each handler in turn -> all that they send + commit       two round trips

`Batches` drives a pipeline; `BatchSize` decides how many messages share a transaction. There are no savepoints. If a
handler, a statement or the commit fails, the whole transaction is rolled back. Then the message that failed is handled
alone (see `pipeline.pipeline`), and those before it are handled together again. So a failing message affects no other
message, nothing of its work stays, and its attempt is counted once. What the other handlers did in the database is
undone and done again. What they did elsewhere is done twice, as after a crash.

The transaction is commit-guarded: a handler that commits would commit the removal of messages that are not handled yet.
If a handler removes the guard and commits, this is seen at its end or at the batch's commit. Then the messages that are
in no queue move to the error queue.

Only the mode `sends_atomic_with_receive` uses batches. In `none` and `receive_only`, a removal or a send commits apart
from the rest, so that a batch would lose or repeat more messages than the mode allows. In `transaction_scope`, each
message decides which databases take part.
"""  # noqa: E501

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from rowpost.errors import DatabaseUnavailable, Deadlock, MessageCorrupt, RowpostError
from rowpost.pipeline.batch_size import BatchSize
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.lost_sessions import is_waiting
from rowpost.recoverability.outcome import DEADLOCKED, Kind, Outcome
from rowpost.recoverability.policy import in_words
from rowpost.recoverability.retries import roll_back
from rowpost.wire.message import Message
from rowpost.wire.outgoing import Call, Outgoing

__all__ = ["Batches"]

#: a batch may take so many times its budget by the clock, most of which its handlers wait, or for a processor
PATIENCE = 4
SUCCEEDED = frozenset({Kind.HANDLED, Kind.DISCARDED, Kind.EXPIRED})
#: kinds of outcomes after which the message is no longer in its queue
REMOVED = SUCCEEDED | {Kind.CORRUPT, Kind.DELAYED, Kind.MOVED_TO_ERROR}


@dataclass(slots=True)
class _Batch:
    """The messages of a transaction in the queue's order, and what they caused so far.

    `times`: for each handled message, its headers and when its handler started; `discarded` the same for each discarded
    one.
    """

    messages: list[Message]
    outcomes: list[Outcome] = field(default_factory=list)
    groups: list[list[Outgoing]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    times: list[tuple[Mapping[str, str | None], float]] = field(default_factory=list)
    discarded: list[tuple[Mapping[str, str | None], float]] = field(default_factory=list)


class Batches:
    """Takes messages through a pipeline, as many in one transaction as `size` allows.

    Args:
        pipeline: receives and handles the messages.
        size: the first size. It adapts after each transaction.
        clock: monotonic time in seconds.
        worked: processor time of this thread, in seconds.

    Attributes:
        kept: the last row version that the last transaction removed; None if messages may be in the queue again.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        size: BatchSize,
        clock: Callable[[], float] = time.perf_counter,
        worked: Callable[[], float] = time.thread_time,
    ) -> None:
        self._pipeline = pipeline
        #: says how many messages the next receive takes at most
        self.size = size if pipeline.allows_batches else BatchSize(1, None)
        self._clock, self._worked = clock, worked
        self.kept: int | None = None

    @property
    def receive_seconds(self) -> float:
        """How long the last receive took."""
        return self._pipeline.receive_seconds

    def process(self, after_row_version: int | None = None) -> list[Outcome]:
        """Receive and handle the oldest messages that are not locked, above `after_row_version`.

        Returns:
            An outcome for each message. If one message ended the transaction, only its outcome: the others are in the
            queue again.

        Raises:
            RowpostError: as `Pipeline.process_one`.
        """
        self.kept = None
        if self.size.now > 1:
            with self._pipeline.transaction:
                return self._process_many(after_row_version)
        outcome = self._pipeline.process_one(after_row_version)
        if outcome.kind in REMOVED:
            self.kept = outcome.row_version
        if self.size.limit == 1:
            return [outcome]
        if outcome.kind in SUCCEEDED:
            self.size = self.size.after(1, self._pipeline.handler_seconds)
        elif outcome.kind is not Kind.EMPTY:
            self.size = self.size.after_failure(place=1)
        return [outcome]

    def _process_many(self, after_row_version: int | None) -> list[Outcome]:
        pipeline = self._pipeline
        try:
            rows = pipeline.receive_batch(self.size.now, after_row_version)
        except Deadlock:
            return [DEADLOCKED]
        if not rows:
            self.size = self.size.after(0, 0.0)
            pipeline.database.rollback()
            return [pipeline.found_nothing()]
        started, worked, batch = self._clock(), self._worked(), _Batch([Message.of_row(row) for row in rows])
        for message in pipeline.in_lock_order(batch.messages):
            ended = self._attempt(message, batch)
            if ended is not None:
                place = batch.messages.index(message) + 1
                conflict = ended.kind is Kind.DEADLOCKED
                self.size = self.size.after_conflict() if conflict else self.size.after_failure(place)
                return [ended, *self._rescue(each for each in batch.messages if each is not message)]
        seconds = max(self._worked() - worked, (self._clock() - started) / PATIENCE)
        failed = self._commit(batch)
        if failed:
            self.size = self.size.after_loss(len(rows))
            return failed
        self.size = self.size.after(len(rows), seconds, sum(len(m.raw_headers) + len(m.body) for m in batch.messages))
        self.kept = batch.messages[-1].row_version
        return sorted(batch.outcomes, key=attrgetter("row_version"))

    def _attempt(self, message: Message, batch: _Batch) -> Outcome | None:
        """Handle one message. Return its outcome if it ended the transaction, else None."""
        pipeline = self._pipeline
        try:
            if message.expired:
                outcome = Outcome.expired(message)
            else:
                started, headers = time.time(), message.headers
                caused = pipeline.attempt(message)
                if isinstance(caused, Outcome):
                    pipeline.measured(caused.kind, [(headers, started)])
                    return caused
                if caused.discard is None:
                    outcome = Outcome(Kind.HANDLED, message.row_version, message.id)
                    batch.times.append((headers, started))
                else:
                    outcome = Outcome.done(message, caused.discard)
                    batch.discarded.append((headers, started))
                if caused.outgoing:
                    batch.groups.append(caused.outgoing)
        except MessageCorrupt as error:
            outcome = Outcome(Kind.CORRUPT, message.row_version, message.id, 1, in_words(error))
            batch.calls.append(pipeline.retries.copies.unchanged(message).call)
        batch.outcomes.append(outcome)
        return None

    def _rescue(self, messages: Iterable[Message]) -> list[Outcome]:
        """Store messages whose removal a handler has committed in the error queue.

        What they sent is lost; what they wrote may be stored.
        """
        pipeline, broken = self._pipeline, self._pipeline.take_broken()
        outcomes: list[Outcome] = []
        if broken is None:
            return outcomes
        trouble: RowpostError | None = None
        for message in messages:
            if not message.expired and not is_waiting(pipeline.database, pipeline.queue, message.row_version):
                try:
                    outcomes.append(pipeline.move_unremoved(message, broken))
                except RowpostError as error:  # the next message is as much in danger
                    trouble = trouble or error
        if trouble is not None:
            raise trouble
        return outcomes

    def _commit(self, batch: _Batch) -> list[Outcome]:
        """Send everything and commit, in one round trip.

        Return outcomes if the transaction was rolled back, or was over, instead.
        """
        pipeline = self._pipeline
        try:
            pipeline.commit_batch(batch.groups, batch.calls + pipeline.retries.forget_calls(batch.messages))
        except DatabaseUnavailable:
            self.size = self.size.after_lost_session(
                len(batch.messages)
            )  # alone, the message that is the cause can be counted
            raise
        except Exception as error:  # noqa: BLE001 whatever it is: alone, the message that causes it fails, and no other one
            roll_back(pipeline.database)
            pipeline.note_broken(error)
            return self._rescue(batch.messages) or [DEADLOCKED]
        pipeline.retries.forgot(batch.messages)
        pipeline.measured(Kind.HANDLED, batch.times)
        pipeline.measured(Kind.DISCARDED, batch.discarded)
        return []
