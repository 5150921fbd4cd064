"""Jobs that write to queues with Spark: list them, forget them, and delete what they no longer need. It needs no Spark.

A job's key includes the name of its queue, `monday@Sales`, because one key may write to several queues. A replay has a
job for each of its steps, `monday/0/8de4e0ea7370@Sales`. `NamedJob` puts the steps together, under the key that the
user typed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from rowpost.database.connection import Connection

__all__ = [
    "LEDGER_KEPT_S",
    "STAGED_KEPT_S",
    "Cleaned",
    "NamedJob",
    "WriteJob",
    "clean_jobs",
    "find_jobs",
    "forget_job",
    "list_jobs",
]

#: Seconds after which stored messages are deleted, if their job has ended or has done nothing since.
STAGED_KEPT_S = 24 * 3600
#: Seconds after which a job is forgotten. Its key can then be used again.
LEDGER_KEPT_S = 90 * 24 * 3600
_BATCH = 4000
_MOST = 10_000
_STEP = re.compile(r"([^/@]+)/\d+/[0-9a-f]{12}")  # of a replay: key, number of the step, hash of the queue
_STATES = ("running", "sending", "failed", "done")  # the first one that a step has is that of the whole


@dataclass(frozen=True, slots=True)
class WriteJob:
    """One job.

    `parts` and `messages` are those of the whole job, and None until all its tasks have succeeded. Times are UTC.

    Attributes:
        state: running, sending, done or failed.
        started_by: user and machine of its latest run.
        messages_staged: messages that tasks have stored and that are not sent, of every run.
    """

    job_key: str
    destination: str
    mode: str
    state: str
    started_by: str | None
    owner_login: str
    started_at: datetime
    changed_at: datetime
    parts: int | None
    messages: int | None
    digest: str | None
    parts_sent: int
    messages_sent: int
    messages_staged: int

    @property
    def key(self) -> str:
        """The key as its user gave it."""
        return self.job_key.removesuffix(f"@{self.destination}")

    @property
    def name(self) -> str:
        """The key that the user typed: without the step of a replay."""
        step = _STEP.fullmatch(self.key)
        return self.key if step is None else step[1]


@dataclass(frozen=True, slots=True)
class NamedJob:
    """The jobs of one name, queue and login: the steps of a replay, or a single one.

    `whole` has the sums of their numbers.
    """

    whole: WriteJob
    steps: tuple[WriteJob, ...]

    @classmethod
    def of(cls, steps: Iterable[WriteJob]) -> NamedJob:
        """Put steps together, the one that changed last first."""
        ordered = tuple(sorted(steps, key=lambda step: step.changed_at, reverse=True))
        first = ordered[0]
        whole = replace(
            first,
            job_key=f"{first.name}@{first.destination}",
            state=min((step.state for step in ordered), key=_STATES.index),
            started_at=min(step.started_at for step in ordered),
            parts=_sum(step.parts for step in ordered),
            messages=_sum(step.messages for step in ordered),
            digest=first.digest if len(ordered) == 1 else None,
            parts_sent=sum(step.parts_sent for step in ordered),
            messages_sent=sum(step.messages_sent for step in ordered),
            messages_staged=sum(step.messages_staged for step in ordered),
        )
        return cls(whole, ordered)


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Return the sum, or None if one of the numbers is not known."""
    known = list(numbers)
    return None if None in known else sum(number for number in known if number is not None)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Rows that were deleted: staged messages, and entries of the ledger.

    `failed` jobs had done nothing for a long time.
    """

    failed: int
    staged: int
    sent: int


def list_jobs(database: Connection, count: int = 100) -> list[NamedJob]:
    """Return the jobs of this login, or of all logins for an operator. The one that changed last comes first."""
    return _by_name(_listed(database, _MOST))[:count]


def find_jobs(database: Connection, key: str) -> list[NamedJob]:
    """Return the jobs of a key as the user typed it, with or without the name of the queue.

    The key of a single step finds this step.
    """
    found = _listed(database, 1, key) or [
        job for job in _listed(database, _MOST) if key in (job.name, f"{job.name}@{job.destination}", job.key)
    ]
    return _by_name(found)


def _listed(database: Connection, count: int, job_key: str | None = None) -> list[WriteJob]:
    return [WriteJob(*row) for row in database.call("list_jobs", count=count, job_key=job_key)]


def _by_name(jobs: Iterable[WriteJob]) -> list[NamedJob]:
    """Put the steps of each name, queue and login together, in the order of the first of them."""
    groups: dict[tuple[str, str, str], list[WriteJob]] = {}
    for job in jobs:
        groups.setdefault((job.name, job.destination, job.owner_login), []).append(job)
    return [NamedJob.of(group) for group in groups.values()]


def forget_job(database: Connection, named: NamedJob) -> NamedJob | None:
    """Delete what is known of a job, and return it with what it had sent. Returns None if it was deleted meanwhile."""
    gone = [found for step in named.steps if (found := _forget_step(database, step)) is not None]
    return NamedJob.of(gone) if gone else None


def _forget_step(database: Connection, job: WriteJob) -> WriteJob | None:
    with database.transaction():
        known = _listed(database, 1, job.job_key)
        gone = database.call("forget_job", job_key=job.job_key)
    database.call("drop_staged", job_key=job.job_key)
    return known[0] if gone and known else None


def clean_jobs(
    database: Connection,
    *,
    staged_kept_s: int = STAGED_KEPT_S,
    ledger_kept_s: int = LEDGER_KEPT_S,
    batches: int | None = None,
) -> Cleaned:
    """Delete what jobs no longer need, in batches of 4,000 rows that are separate transactions.

    Args:
        batches: how many batches at most; None until nothing is left.

    Raises:
        PermissionDenied: the login is not an operator.
        FeatureMissing: the database has no feature spark.
    """
    failed = staged = sent = 0
    while batches is None or batches > 0:
        row = database.call_atomically(
            "clean_jobs", staged_seconds=staged_kept_s, ledger_seconds=ledger_kept_s, count=_BATCH
        )[0]
        failed, staged, sent = failed + row.failed, staged + row.staged, sent + row.sent
        batches = None if batches is None else batches - 1
        if max(row.staged, row.sent) < _BATCH:
            break
    return Cleaned(failed, staged, sent)
