"""rowpost spark archive, retain, compact, verify: write archives and maintain them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowpost.cli.command import command
from rowpost.cli.completion import queue_names
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.formats import parse_duration
from rowpost.cli.printing import table
from rowpost.cli.session import Session
from rowpost.cli.spark.running import (
    ArchiveArgument,
    ConfOption,
    MasterOption,
    ProgressOption,
    PrometheusOption,
    UiOption,
    counter,
    counts,
    local_folder,
    receivers,
    registered_queues,
    running,
)

if TYPE_CHECKING:

    from rowpost.database.connection import Connection




from rowpost.cli.exits import Interrupted
from rowpost.database.connection import Connection

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands to a group."""
    command(app, "archive")(archive)
    command(app, "retain")(retain)
    command(app, "compact")(compact)
    command(app, "verify")(verify)


def archive(
    session: Session,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The audit or error queue, or several with commas between them: audit,error.", autocompletion=queue_names)],
    folder: ArchiveArgument,
    drain: Annotated[bool, typer.Option("--drain/--tail", help="Remove the messages from the queue, or only read them.")] = False,
    shared: Annotated[bool, typer.Option("--shared", help="With --drain: allow it although the queue has consumers, whose messages are then removed.")] = False,
    take_over: Annotated[bool, typer.Option("--take-over", help="With --drain: also archive what a stream with a lost checkpoint left in the spool.")] = False,
    every: Annotated[str | None, typer.Option("--every", metavar="DURATION", help="Keep running and poll at this interval, such as 10s.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Archive the messages that are there now, then exit. This is the default.")] = False,
    max_rows: Annotated[int, typer.Option("--max-rows", min=1, help="Maximum number of messages in one batch.")] = 50_000,
    format: Annotated[str, typer.Option("--format", metavar="parquet|delta", help="The file format. delta needs the extra rowpost[delta].")] = "parquet",
    checkpoint: Annotated[str | None, typer.Option("--checkpoint", metavar="DIR", help="Where Spark stores its progress. Default: a folder in DIR.")] = None,
    fail_when_held: Annotated[bool, typer.Option("--fail-when-held", help="Exit with 1 if open transactions hold messages back, which a later run archives.")] = False,
    progress: ProgressOption = None,
    prometheus: PrometheusOption = None,
    ui: UiOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> ExitCode:
    """Archive a queue's messages to files by queue and day, each exactly once, even if the command is restarted."""
    if format not in ("parquet", "delta"):
        raise Refused(f"--format must be parquet or delta (got {format!r}).", ExitCode.USAGE)
    if once and every:
        raise Refused("--once and --every cannot be combined.", ExitCode.USAGE)
    if (shared or take_over) and not drain:
        raise Refused("--shared and --take-over need --drain: without it, messages are only read.", ExitCode.USAGE)
    if fail_when_held and (drain or every):
        raise Refused("--fail-when-held is for a tail that ends: --drain waits for no transaction, and --every does not end.", ExitCode.USAGE)
    names = [session.name(each) for each in dict.fromkeys(queue.split(","))]
    name, span = ",".join(names), None if every is None else parse_duration(every)
    options = [("allowConsumers", "true")] * shared + [("takeOver", "true")] * take_over
    with session.deployed() as database:
        for registered in registered_queues(database, names).values():
            database.call("describe_spool" if drain else "describe_stream", registered)  # raises FeatureMissing, before Java starts
        with receivers(session, progress, prometheus) as receive, running(session, master, conf, f"archive {name}", ui) as spark:
            from rowpost.spark.jobs import archive as jobs

            job = jobs.ArchiveJob(
                name, folder, session.environment, "drain" if drain else "tail", None if span is None else jobs.trigger_of(span),
                max_rows, format, checkpoint, tuple(options),
            )  # fmt: skip
            try:
                done = jobs.run(spark, job, counter(session, "{of} messages archived in {done} batches"), receive)
            except KeyboardInterrupt:
                raise Interrupted(f"what was archived of {name} is kept; run the same command again to continue") from None
    if done.get("waiting"):
        session.note(_why_held(name, done))
    counts(session, {**done, "out": folder})
    return ExitCode.FINDING if fail_when_held and done.get("waiting") else ExitCode.OK


def _why_held(queue: str, done: Mapping[str, Any]) -> str:
    """Say why messages were not archived."""
    held = f"{done['waiting']:,} messages of {queue} are not archived yet: transactions that write to the queue were open, and a message below them may still appear."
    if not done["held_by"]:
        return f"{held} They have ended; run the command again."
    names = "; ".join(_holder(**each) for each in done["held_by"])
    return f"{held} Open now: {names}. A later run archives the messages when these have ended, or if none of them is open then."


def _holder(process: int | None, since: str | None, application: str | None) -> str:
    who = "a prepared transaction" if process is None else f"process {process}"
    return who + (f" ({application})" if application else "") + (f" since {since}" if since else "")


def retain(
    session: Session,
    archive: ArchiveArgument,
    policy: Annotated[Path, typer.Argument(metavar="POLICY", help="A YAML file with rules: see docs/guides/spark.md.", exists=True, dir_okay=False)],
    apply: Annotated[bool, typer.Option("--apply", help="Change the archive. Without it, only show the changes.")] = False,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Delete or redact messages in an archive by rules. Without --apply, only show what would change."""
    from rowpost.spark.archive.policy import read_policy

    rules = read_policy(policy)
    local_folder(archive)
    with running(session, master, conf, "retain") as spark:
        from rowpost.spark.jobs import retain as job

        steps, done = job.run(spark, archive, rules, datetime.now(UTC), apply=apply, progress=counter(session, "{done} of {of} days"))
    if not session.as_json:
        names = ("queue", "day", "action", "messages", "bytes")
        table(session.out, names, [(s["queue"], s["day"], s["action"], f"{s['messages']:,}", f"{s['bytes']:,}") for s in steps], right=names[3:])
        if not apply:
            session.note("Nothing was changed. To make these changes, add --apply." if steps else "No message matches a rule.")
    counts(session, {"applied": apply, "planned": sum(s["messages"] for s in steps), **done, **({"steps": steps} if session.as_json else {})})


def compact(
    session: Session,
    archive: ArchiveArgument,
    older_than: Annotated[str, typer.Option("--older-than", metavar="DURATION", help="Only batches that are older than this.")] = "2d",
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Merge the small batches of each day. Run it while no job reads the archive."""
    span = parse_duration(older_than)
    local_folder(archive)
    with running(session, master, conf, "compact") as spark:
        from rowpost.spark.jobs import compact as job

        done = job.run(spark, archive, datetime.now(UTC), span, counter(session, "{done} of {of} days"))
    counts(session, done)


def verify(
    session: Session,
    archive: ArchiveArgument,
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Compare with the messages that are now in this queue.", autocompletion=queue_names, show_default=False)] = None,
    sweep: Annotated[bool, typer.Option("--sweep", help="First remove what killed writers left. Use it only while no job writes.")] = False,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> ExitCode:
    """Check an archive: counts, duplicates, missing batches, unreadable files, leftovers. Exit code 1 with a finding."""
    local_folder(archive)
    name = None if queue is None else session.name(queue)
    with nullcontext() if name is None else session.deployed() as database, running(session, master, conf, "verify") as spark:
        from rowpost.spark.archive.folder import ArchiveFolder
        from rowpost.spark.jobs import verify as job
        from rowpost.spark.jobs.archive import read_queue

        swept = ArchiveFolder(archive).sweep() if sweep else []
        if name is None or database is None:
            report, spooled = job.run(spark, archive), {}
        else:
            waiting = job.Waiting(name, read_queue(spark, name, session.environment, columns=("id", "row_version")))
            report, spooled = job.run(spark, archive, waiting), {"spooled": _spooled(database, name)}
    if not session.as_json:
        table(session.out, ("queue", "day", "messages", "bytes"), [(q, d, f"{n:,}", f"{b:,}") for q, d, n, b in report.days], right=("messages", "bytes"))
        if report.findings:
            table(session.out, ("finding", "details", "what to do"), [(f.kind, f.what, f.advice) for f in report.findings])
    details = {"details": [finding.__dict__ for finding in report.findings]} if session.as_json else {}
    counts(session, {**report.counts, **spooled, "swept": len(swept), **details})
    return ExitCode.FINDING if report.findings else ExitCode.OK


def _spooled(database: Connection, queue: str) -> int:
    """Count the spooled messages: those of the batch that a drain is writing, or was writing when it was killed."""
    rows = database.call("describe_spool", queue)
    first, last = rows[0][2:4] if rows else (None, None)
    return 0 if first is None else last - first + 1


