"""rowpost spark jobs list, show, forget: the jobs that write to queues. These commands start no Spark."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from rowpost.cli.command import YesOption, command
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.printing import table
from rowpost.cli.session import Session
from rowpost.database.connection import Connection
from rowpost.transport.jobs import NamedJob, WriteJob, find_jobs, forget_job, list_jobs

__all__ = ["app"]

app = typer.Typer(help="Show and forget jobs that write to queues.", no_args_is_help=True)

JobKeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="The job's key, or KEY@QUEUE.")]
_NUMBERS = ("steps", "messages", "sent", "staged")
_COLUMNS = ("key", "queue", "state", "mode", *_NUMBERS, "changed (UTC)", "started by", "login")
_ACTIVE = ("running", "sending")


@command(app, "list")
def list_(
    session: Session,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Show at most this many jobs.")] = 100,
    state: Annotated[
        str | None, typer.Option("--state", metavar="running|sending|done|failed", help="Show only jobs in this state.")
    ] = None,
) -> None:
    """List jobs, the one that changed last first. Operators see the jobs of all logins."""
    with session.deployed() as database:
        found = [job for job in list_jobs(database, limit) if state in (None, job.whole.state)]
    documents, rows = [_document(job) for job in found], [_row(job) for job in found]
    session.listing(documents, _COLUMNS, rows, right=_NUMBERS, none="There are no jobs.", instead=True)


@command(app)
def show(session: Session, key: JobKeyArgument) -> None:
    """Show the jobs of a key: state, owner, times, what they sent and what they stored."""
    with session.deployed() as database:
        found = _find(database, key)
    if session.as_json:
        session.document([_document(job) for job in found])
        return
    for job in found:
        table(
            session.out, ("field", "value"), [(name.replace("_", " "), value) for name, value in _document(job).items()]
        )


@command(app)
def forget(
    session: Session,
    key: JobKeyArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Forget a job that is running or sending: its process has ended.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Forget a job, so that its key can be used again. Messages that it has sent stay in the queue."""
    with session.deployed() as database:
        found = _find(database, key)
        if len(found) > 1:
            names = " or ".join(job.whole.job_key for job in found)
            raise Refused(f"The key {key!r} has jobs for several queues. Name one: {names}.", ExitCode.USAGE)
        (job,) = found
        whole = job.whole
        if whole.state in _ACTIVE and not force:
            raise Refused(
                f"The job {whole.job_key!r} is {whole.state} since {whole.changed_at:%Y-%m-%d %H:%M:%S} UTC, started "
                f"by {whole.started_by}. If you run it again under its key, it sends the rest. If its process has "
                "ended and you want to give it up, add --force.",
                ExitCode.FAILED,
            )
        session.confirm(
            f"Forget the job {whole.job_key!r}? {_sent(whole)} If it runs again, these are sent again.", yes
        )
        gone = forget_job(database, job)
    sentence = f"Forgot the job {whole.job_key}. {_sent((gone or job).whole)}"
    session.answer({"forgotten": gone is not None, **_document(gone or job)}, sentence, on_stdout=True)


def _find(database: Connection, key: str) -> list[NamedJob]:
    found = find_jobs(database, key)
    if not found:
        raise Refused(
            f"There is no job {key!r} of this login. To list the jobs, run: rowpost spark jobs list", ExitCode.NOT_FOUND
        )
    return found


def _sent(job: WriteJob) -> str:
    return (
        f"It had sent {job.messages_sent:,} messages in {job.parts_sent} parts to {job.destination}; they stay there."
    )


def _document(named: NamedJob) -> dict[str, object]:
    job = named.whole
    times = {"started_at": f"{job.started_at.isoformat()}Z", "changed_at": f"{job.changed_at.isoformat()}Z"}
    return {"key": job.key, "steps": len(named.steps), **asdict(job), **times}


def _row(named: NamedJob) -> tuple[object, ...]:
    job = named.whole
    messages, changed = "-" if job.messages is None else f"{job.messages:,}", f"{job.changed_at:%Y-%m-%d %H:%M:%S}"
    numbers = (len(named.steps), messages, f"{job.messages_sent:,}", f"{job.messages_staged:,}")
    return job.key, job.destination, job.state, job.mode, *numbers, changed, job.started_by or "-", job.owner_login
