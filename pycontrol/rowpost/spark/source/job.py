"""The jobs of the sink, as the database stores them: begin a run, send what its tasks have stored, end it.

    running ──seal──► sending ──all parts sent──► done
       └──abort──► failed ──same key again──► running

`seal` fixes which messages a job sends. From then on they are sent part by part, each in one transaction with its entry
in the ledger. Whoever runs the job again under its key sends the parts that are left.

If the rows name their destinations, the messages of a task are staged under one attempt for each queue, whose name has
a hash of the queue's name, because attempts have at most 100 characters. A job that is run again finds them without a
list: the digest of its messages includes the queues.

A digest has 64 hexadecimal digits. The first 32 are a sum over the messages: they do not depend on order or partitions,
and decide whether two runs have the same messages. The last 32 depend on the order too.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from struct import pack

from pyspark.sql.datasource import WriterCommitMessage

from rowpost.archive.source.connection import naming_what_is_gone
from rowpost.database.connection import Connection
from rowpost.errors import DatabaseError, InvalidJobKey, QueueNotFound
from rowpost.wire.address import parse_address
from rowpost.wire.user import user_name

__all__ = [
    "Destinations",
    "Job",
    "MessageTally",
    "Stored",
    "attempt_for",
    "full_key",
    "queues_of",
    "same_messages",
    "send_staged",
    "total",
]

MAX_KEY_LENGTH = 200
SEALED = ("sending", "done")
_SEVERAL = "*"  # in place of the queue of a job: each row names its own
_SIZE = 16
_DIGITS = 2 * _SIZE
_MODULUS = 2 ** (8 * _SIZE)
_NULL = -1


@dataclass(frozen=True)
class Stored(WriterCommitMessage):
    """What one attempt of a task has stored, with the queues that the rows name, and of a stream the job's key."""

    attempt: str
    messages: int
    digest: str
    queues: frozenset[str] = frozenset()
    job_key: str = ""

    @classmethod
    def of(cls, attempt: str, tally: MessageTally, job_key: str = "") -> Stored:
        return cls(attempt, tally.messages, tally.digest, frozenset(tally.queues), job_key)


@dataclass(frozen=True)
class Job:
    """One run of a job.

    `key` includes the queue's name, `run` identifies the run. If `queue` is None, the rows name their destinations.
    """

    key: str
    queue: str | None
    run: str

    def begin(self, database: Connection, mode: str) -> tuple[bool, str]:
        """Begin the run. Returns whether the job is sealed, so that its messages are fixed, and its mode.

        Raises QueueNotFound, JobKeyUsed.
        """
        if self.queue is not None:
            with naming_what_is_gone(database, self.queue):  # the call fails if the queue does not exist
                database.call("send_staged", self.queue, job_key=self.key, attempts=[])
        destination, user = self.queue or _SEVERAL, f"{user_name()}@{socket.gethostname()}"
        row = database.call_atomically(
            "begin_job", job_key=self.key, destination=destination, run=self.run, mode=mode, started_by=user
        )[0]
        return row.state in SEALED, row.mode

    def seal(self, database: Connection, stored: Sequence[Stored]) -> list[tuple[int, Stored]]:
        """Fix what the job sends, and return the parts that are left.

        Raises JobKeyUsed if an earlier run sent other messages.
        """
        rows = database.call_atomically(
            "seal_job",
            job_key=self.key,
            attempts=[each.attempt for each in stored],
            messages=[str(each.messages) for each in stored],
            digests=[each.digest for each in stored],
            digest=total(each.digest for each in stored),
        )
        # the same messages have the same destinations as a whole, also if an earlier run stored them in other parts
        known, every = {each.attempt: each.queues for each in stored}, queues_of(stored)
        return [
            (row.part, Stored(row.attempt, row.messages, row.digest, known.get(row.attempt, every))) for row in rows
        ]

    def send(self, database: Connection, part: int, stored: Stored) -> int:
        """Send one part, unless another process has sent it meanwhile.

        Returns the number of messages. Raises DatabaseError if some are missing.
        """
        with naming_what_is_gone(database, self.queue), database.transaction():
            if not database.call("claim_ledger", job_key=self.key, part=part)[0].claimed:
                return 0
            sent = send_staged(database, self.queue, self.key, [stored])
            database.call("settle_ledger", job_key=self.key, part=part, messages=stored.messages, digest=stored.digest)
        return sent

    def finish(self, database: Connection) -> None:
        """Record that all parts are sent, and delete what other attempts stored."""
        database.call_atomically("end_job", job_key=self.key, run=self.run, done=True)
        database.call("drop_staged", job_key=self.key)

    def fail(self, database: Connection) -> None:
        """Record that this run failed, and delete what it stored.

        Tasks that are still running are refused from now on.
        """
        database.call_atomically("end_job", job_key=self.key, run=self.run, done=False)
        database.call("drop_staged", job_key=self.key, run=self.run)


def send_staged(database: Connection, queue: str | None, job_key: str, stored: Sequence[Stored]) -> int:
    """Send staged messages in the caller's transaction, and return their number.

    Raises DatabaseError if some are missing.
    """
    sent, expected = 0, sum(each.messages for each in stored)
    for name in sorted(queues_of(stored)) if queue is None else [queue]:
        attempts = [attempt_for(each.attempt, name) if queue is None else each.attempt for each in stored]
        sent += database.call("send_staged", name, job_key=job_key, attempts=attempts)[0].sent
    if sent != expected:
        raise DatabaseError(
            f"{expected} messages were staged for {queue or 'several queues'}, but only {sent} of them exist: another "
            "session deleted the others. None of them was sent. Forget the job (`rowpost spark jobs forget`) and run "
            "it again."
        )
    return sent


def full_key(key: str, queue: str | None) -> str:
    """Add the queue's name to a key: one key may write to several queues, once to each. Raises InvalidJobKey."""
    full = f"{key}@{queue or _SEVERAL}"
    if not key or len(full) > MAX_KEY_LENGTH:
        raise InvalidJobKey(
            f"The job key {key!r} is not valid: it must not be empty, and with the queue's name it may have at most "
            f"{MAX_KEY_LENGTH} characters (got {len(full)})."
        )
    return full


class Destinations:
    """The registered queues of a database, which are read once."""

    def __init__(self, database: Connection) -> None:
        self._database = database

    @cached_property
    def _registered(self) -> set[str]:
        return {row.queue_name for row in self._database.call("list_queues") if row.kind != "external"}

    def has(self, queue: str) -> bool:
        """Tell whether a queue exists. Raises InvalidQueueName for a name that no queue can have."""
        return self._database.local(parse_address(queue)).format() in self._registered

    def check(self, queues: Iterable[str]) -> None:
        """Raise QueueNotFound, which names all queues that do not exist."""
        missing = sorted(queue for queue in queues if not self.has(queue))
        if missing:
            raise QueueNotFound(
                f"Nothing was sent: the column queue names {', '.join(map(repr, missing))}, but no such queue is in "
                "this database. Create the queue, or leave its rows out. `rowpost queue list` shows the queues."
            )


def attempt_for(attempt: str, queue: str) -> str:
    """Return the name under which a task stages its messages for a queue."""
    return f"{attempt}:{hashlib.sha256(queue.encode()).hexdigest()[:12]}"


def queues_of(stored: Iterable[Stored]) -> frozenset[str]:
    """Return the queues of all parts."""
    return frozenset().union(*(each.queues for each in stored))


class MessageTally:
    """Number and digest of messages, and the queues that they name. Each counts with its parts and their lengths."""

    def __init__(self) -> None:
        self.messages, self._sum, self._sequence = 0, 0, blake2b(digest_size=_SIZE)
        self.queues: set[str] = set()

    def add(self, id: str | None, headers: str, body: bytes | None, queue: str | None = None) -> None:
        """Add one message."""
        identity, text = (id or "").encode(), headers.encode()
        lengths = pack(">qqq", _NULL if id is None else len(identity), len(text), _NULL if body is None else len(body))
        hashed = blake2b(lengths + identity + text, digest_size=_SIZE)
        if queue is not None:
            self.queues.add(queue)
            hashed.update(pack(">q", len(queue.encode())) + queue.encode())
        hashed.update(body or b"")
        digest = hashed.digest()
        self.messages += 1
        self._sum = (self._sum + int.from_bytes(digest, "big")) % _MODULUS
        self._sequence.update(digest)

    @property
    def digest(self) -> str:
        """The digest as 64 hexadecimal digits."""
        return f"{self._sum:0{_DIGITS}x}{self._sequence.hexdigest()}"


def total(digests: Iterable[str]) -> str:
    """Return the digest of the messages of several parts, in the order of the parts."""
    added, sequence = 0, blake2b(digest_size=_SIZE)
    for digest in digests:
        added = (added + int(digest[:_DIGITS], 16)) % _MODULUS
        sequence.update(bytes.fromhex(digest))
    return f"{added:0{_DIGITS}x}{sequence.hexdigest()}"


def same_messages(one: tuple[int | None, str | None], other: tuple[int, str]) -> bool:
    """Tell whether two numbers and digests are of the same messages. Spark keeps no order across a shuffle."""
    return one[0] == other[0] and (one[1] or "")[:_DIGITS] == other[1][:_DIGITS]
