"""Jobs that write to queues with Spark: list them, forget them, and delete what they no longer need. It needs no Spark.

A job's key includes the name of its queue, `monday@Sales`, because one key may write to several queues.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rowpost.database.connection import Connection

__all__ = ["LEDGER_KEPT_S", "STAGED_KEPT_S", "Cleaned", "WriteJob", "clean_jobs", "find_jobs", "forget_job", "list_jobs"]

#: Seconds after which stored messages are deleted, if their job has ended or has done nothing since.
STAGED_KEPT_S = 24 * 3600
#: Seconds after which a job is forgotten. Its key can then be used again.
LEDGER_KEPT_S = 90 * 24 * 3600
_BATCH = 4000
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class WriteJob:
    """One job. `parts` and `messages` are those of the whole job, and None until all its tasks have succeeded. Times are UTC.

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


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Rows that were deleted: staged messages, and entries of the ledger. `failed` jobs had done nothing for a long time."""

    failed: int
    staged: int
    sent: int


def list_jobs(database: Connection, count: int = 100, job_key: str | None = None) -> list[WriteJob]:
    """Return the jobs of this login, or of all logins for an operator. The one that changed last comes first."""
    return [WriteJob(*row) for row in database.call("list_jobs", count=count, job_key=job_key)]


def find_jobs(database: Connection, key: str) -> list[WriteJob]:
    """Return the jobs of a key, with or without the name of the queue."""
    exact = list_jobs(database, 1, key)
    return exact or [job for job in list_jobs(database, _MOST) if job.key == key]


def forget_job(database: Connection, job: WriteJob) -> WriteJob | None:
    """Delete what is known of a job, and return it with what it had sent. Returns None if it was deleted meanwhile."""
    with database.transaction():
        known = list_jobs(database, 1, job.job_key)
        gone = database.call("forget_job", job_key=job.job_key)
    database.call("drop_staged", job_key=job.job_key)
    return known[0] if gone and known else None


def clean_jobs(
    database: Connection, *, staged_kept_s: int = STAGED_KEPT_S, ledger_kept_s: int = LEDGER_KEPT_S, batches: int | None = None
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
        row = database.call_atomically("clean_jobs", staged_seconds=staged_kept_s, ledger_seconds=ledger_kept_s, count=_BATCH)[0]
        failed, staged, sent = failed + row.failed, staged + row.staged, sent + row.sent
        batches = None if batches is None else batches - 1
        if max(row.staged, row.sent) < _BATCH:
            break
    return Cleaned(failed, staged, sent)
