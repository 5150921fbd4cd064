"""rowpost spark archive, retain, compact, erase, verify: write archives and maintain them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, astuple
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from rowpost.cli.archiving import ArchivingOptions, QueuesArgument, check_queues
from rowpost.cli.completion import queue_names
from rowpost.cli.exits import CommandInterrupted, ExitCode, Refused
from rowpost.cli.formats import parse_duration
from rowpost.cli.session import Session
from rowpost.cli.spark.running import ArchiveArgument, SparkOptions, StreamOptions, imported, local_folder, running

__all__ = ["archive", "compact", "erase", "retain", "verify"]


def archive(
    session: Session,
    queue: QueuesArgument,
    folder: ArchiveArgument,
    archiving: ArchivingOptions,
    stream: StreamOptions,
    options: SparkOptions,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="DIR",
            help=(
                "Where Spark stores its progress. Default: a folder in DIR. A new one continues where the archive ends."
            ),
        ),
    ] = None,
) -> ExitCode:
    """Archive a queue's messages to a Delta table by queue and day, each exactly once, even if the command is
    restarted.
    """
    names = [session.stream_name(each) for each in dict.fromkeys(queue.split(","))]
    name, span = ",".join(names), archiving.interval
    chosen = {
        "allowConsumers": archiving.shared,
        "takeOver": archiving.take_over,
        "failOnDataLoss": not archiving.accept_loss,
    }
    local_folder(folder, is_new=True)
    with session.deployed() as database:
        with imported():
            check_queues(session, database, names)
        with stream.receivers(session) as receive, running(session, options, f"archive {name}", ui=stream.ui) as spark:
            from rowpost.archive.source.options import DEFAULT_BYTES
            from rowpost.spark.jobs import archive as jobs

            job = jobs.ArchiveJob(
                name,
                folder,
                session.environment,
                archiving.mode,
                None if span is None else jobs.trigger_of(span),
                archiving.max_rows,
                checkpoint,
                tuple((option, str(value).lower()) for option, value in chosen.items()),
                archiving.max_bytes or DEFAULT_BYTES,
            )
            progress = session.counter("{of} messages archived in {done} batches")
            try:
                done = jobs.run(spark, job, progress, [*receive, *stream.in_spark(spark)])
            except KeyboardInterrupt:
                kept = f"what was archived of {name} is kept; run the same command again to continue"
                raise CommandInterrupted(kept) from None
    return archiving.report(session, name, {**done, "out": folder})


def retain(
    session: Session,
    archive: ArchiveArgument,
    policy: Annotated[
        Path,
        typer.Argument(
            metavar="POLICY",
            help="A YAML file with rules: see docs/guides/spark-archive.md.",
            exists=True,
            dir_okay=False,
        ),
    ],
    apply: Annotated[
        bool, typer.Option("--apply", help="Change the archive. Without it, only show the changes.")
    ] = False,
    *,
    options: SparkOptions,
) -> ExitCode:
    """Delete or redact messages in an archive and in its decoded tables by rules.

    Without --apply, only show what would change. Exit code 1 if such a table is missing.
    """
    with imported():
        from rowpost.spark.jobs.retain import read_policy

    rules = read_policy(policy)
    with running(session, options, "retain", archive) as spark:
        from rowpost.spark.jobs import retain as job

        steps, done = job.run(
            spark, archive, rules, datetime.now(UTC), apply=apply, progress=session.counter("{done} of {of} days")
        )
    session.rows(("queue", "day", "action", "messages", "bytes"), [tuple(step.values()) for step in steps])
    if not apply:
        session.remark(
            "Nothing was changed. To make these changes, add --apply." if steps else "No message matches a rule."
        )
    _name_missing(session, done["copies_missing"], "delete the rows there")
    session.counts({"applied": apply, "planned": sum(step["messages"] for step in steps), **done}, steps=steps)
    return ExitCode.FINDING if done["copies_missing"] else ExitCode.OK


def compact(
    session: Session,
    archive: ArchiveArgument,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="DURATION", help="Only files that are older than this.")
    ] = "0s",
) -> None:
    """Merge the small files of each day. Other jobs may read and write meanwhile. Starts no Spark."""
    span = parse_duration(older_than)
    local_folder(archive)
    with imported():
        from rowpost.archive.merging import compact as merge

        done = merge(archive, datetime.now(UTC), span, session.counter("{done} files merged to {of}"))
    if done["files_before"]:
        session.remark(
            "Programs that read the Parquet files of this archive without the table's log count merged messages twice: "
            "let them read it as a Delta table."
        )
    session.counts(done)


def erase(
    session: Session,
    archive: ArchiveArgument,
    reason: Annotated[
        str,
        typer.Option(
            "--reason",
            metavar="TEXT",
            help="Why, for the receipt, such as the number of the request. Do not name the person.",
        ),
    ],
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="A SQL condition on the archive's columns.")
    ] = None,
    ids: Annotated[
        Path | None,
        typer.Option(
            "--ids", metavar="FILE", help="A file with the id of one message in each line.", exists=True, dir_okay=False
        ),
    ] = None,
    idle: Annotated[
        bool,
        typer.Option("--idle", help="No job writes to the archive now: also delete files that a job may be writing."),
    ] = False,
    *,
    options: SparkOptions,
) -> ExitCode:
    """Erase messages with all their copies in an archive, and write a receipt.

    Time travel ends here. Exit code 1 if a job is writing such a message now.
    """
    if where is None and ids is None:
        raise Refused("Say what to erase: --where with a condition, --ids with a file, or both.", ExitCode.USAGE)
    with running(session, options, "erase", archive) as spark:
        from rowpost.spark.jobs import erase as job

        selection = job.Erasure(where, () if ids is None else job.read_lines(ids))
        done = job.run(
            spark,
            archive,
            selection,
            reason,
            datetime.now(UTC),
            idle=idle,
            progress=session.counter("{done} messages erased in {of} files"),
        )
    session.remark(f"The messages cannot be brought back. Time travel to versions before {done['version']} has ended.")
    if done["unfinished"]:
        session.remark(f"{done['unfinished']} files that a job is writing hold such messages or cannot be read yet. "
                     "Run the command again when it has committed them, or with --idle if it was killed.")  # fmt: skip
    for place, rows in done["copies_undecided"].items():
        session.remark(
            f"The condition cannot be applied to {rows:,} rows of {place}: the archive has no such messages any more, "
            "and the table lacks a column of the condition. Erase them by their ids (--ids), or by the table's own "
            f"columns: rowpost spark erase {place} --where SQL."
        )
    _name_missing(session, done["copies_missing"], "erase them there: rowpost spark erase PLACE --ids FILE")
    session.counts(done)
    return ExitCode.FINDING if done["unfinished"] or done["copies_missing"] or done["copies_undecided"] else ExitCode.OK


def _name_missing(session: Session, places: list[str], moved: str) -> None:
    for place in places:
        session.remark(f"Messages were copied to {place}, where no table is now. If you moved it, {moved}. "
                     "If you deleted it, delete its file in _rowpost/copies of the archive.")  # fmt: skip


def verify(
    session: Session,
    archive: ArchiveArgument,
    queue: Annotated[
        str | None,
        typer.Argument(
            metavar="[QUEUE]",
            help="Compare with the messages that are now in this queue.",
            autocompletion=queue_names,
            show_default=False,
        ),
    ] = None,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="First remove what killed writers left. Use it only while no job writes.")
    ] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="First remove later copies of messages, and take files that cannot be read out of the table.",
        ),
    ] = False,
    absent: Annotated[
        Path | None,
        typer.Option(
            "--absent",
            metavar="FILE",
            help=(
                "Search all files of the archive, and of its decoded tables, for the ids or texts in this file, one in "
                "each line."
            ),
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    *,
    options: SparkOptions,
) -> ExitCode:
    """Check an archive: counts, duplicates, missing and unreadable files. Exit code 1 with a finding."""
    local_folder(archive)
    name = None if queue is None else session.stream_name(queue)
    with (
        nullcontext() if name is None else session.deployed() as database,
        running(session, options, "verify") as spark,
    ):
        from rowpost.archive.source.drain import spooled
        from rowpost.archive.source.queue_stream import describe
        from rowpost.spark.jobs import verify as job
        from rowpost.spark.jobs.archive import read_queue
        from rowpost.spark.jobs.erase import read_lines

        mended = {"swept": job.sweep_all(archive) if sweep else 0, **(job.repair(spark, archive) if repair else {})}
        if name is None or database is None:
            report, in_spool = job.run(spark, archive), {}
        else:
            messages = read_queue(spark, name, session.environment, columns=("id", "row_version"))
            waiting = job.Waiting(name, messages, describe(database, name).identity)
            report, in_spool = job.run(spark, archive, waiting), {"spooled": spooled(database, name)}
        present = [] if absent is None else job.absent(spark, archive, read_lines(absent))
    findings = [*report.findings, *present]
    session.rows(("queue", "day", "messages", "bytes"), report.days)
    if findings or report.notes:
        session.rows(("finding", "details", "what to do"), [astuple(each) for each in (*findings, *report.notes)])
    details, notes = (list(map(asdict, remarks)) for remarks in (findings, report.notes))
    session.counts({**report.counts, "findings": len(findings), **in_spool, **mended}, details=details, notes=notes)
    return ExitCode.FINDING if findings else ExitCode.OK
