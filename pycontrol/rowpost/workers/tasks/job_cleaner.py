"""The periodic task that deletes what jobs of Spark no longer need: stored messages of jobs that failed, and old
ledgers.
"""

from __future__ import annotations

from rowpost.database.connection import Connection
from rowpost.errors import FeatureMissing, PermissionDenied
from rowpost.settings.environment import Settings
from rowpost.transport.jobs import clean_jobs
from rowpost.workers import events
from rowpost.workers.tasks.periodic import Election, Work, periodic_task

__all__ = ["make_job_cleaner"]

_UNIT = "jobs"  # the one unit of work of this task, in the place of a queue
_BATCHES = 5
_NOT_ALLOWED = (
    "The login may not delete what Spark's jobs no longer need. Make it a member of the role rowpost_operator, or set "
    "maintenance_every: 0 and let an operator run `rowpost queue maintain`."
)


@periodic_task("rowpost job cleaner", "clean")
def make_job_cleaner(settings: Settings, emit: events.Emit) -> Work:
    """Return the task of a process.

    The database elects one of all processes. Off with maintenance_every: 0 and without the feature spark.
    """
    every, election = settings.supervisor.maintenance_every, Election("jobs")

    def clean(database: Connection, unit: str) -> float | None:
        if not election.won(database):
            return every
        try:
            cleaned = clean_jobs(database, batches=_BATCHES)
        except PermissionDenied:
            emit(events.Warned(queue=unit, text=_NOT_ALLOWED))
            return None
        except FeatureMissing:
            return None
        if cleaned.failed or cleaned.staged or cleaned.sent:
            text = (
                f"{cleaned.staged} stored messages and {cleaned.sent} ledger entries deleted; {cleaned.failed} jobs "
                "counted as failed"
            )
            emit(events.Maintained(queue=unit, action="jobs", text=text))
        return every

    return [_UNIT] if every > 0 and "spark" in settings.features else [], clean
