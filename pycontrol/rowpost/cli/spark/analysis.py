"""rowpost spark doctor, metrics, conversations, failures: check the installation and evaluate an archive."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from rowpost.cli.completion import queue_names
from rowpost.cli.doctor import print_checks
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.formats import parse_duration
from rowpost.cli.printing import visible
from rowpost.cli.session import Session
from rowpost.cli.spark.running import ArchiveArgument, SparkOptions, StreamOptions, result_folder, running
from rowpost.operations.figures import registered_queues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rowpost.spark.progress import Receiver

__all__ = ["conversations", "doctor", "failures", "metrics"]

SHOWN = 40
SampleOption = Annotated[int, typer.Option("--count", "-n", min=1, help="Maximum number of rows to print.")]
OutOption = Annotated[
    str | None,
    typer.Option("--out", metavar="DIR", help="Write the result to this folder as Parquet, and replace what is there."),
]


def doctor(
    session: Session,
    archive: Annotated[
        str | None,
        typer.Argument(
            metavar="[DIR]",
            help="Check too what an archive in this place needs, such as s3a://lake/archive.",
            show_default=False,
        ),
    ] = None,
    *,
    options: SparkOptions,
) -> ExitCode:
    """Check what Spark needs: packages, Java, a session, a worker, the database, and the store of an archive.

    Exit code 1 if a check fails.
    """
    from rowpost.spark.doctor import check_environment, check_session
    from rowpost.spark.session import session as start

    checks = list(check_environment())
    if not any(check.state == "bad" for check in checks):
        with running(session, options, "doctor"):
            checks += check_session(start, lambda: _database(session), archive)
    return print_checks(session, checks)


def _database(session: Session) -> str:
    """Check that the database can be reached and that a stream may read one of its queues."""
    from rowpost.archive.source.queue_stream import describe

    with session.deployed() as database:
        own = [row.queue_name for row in registered_queues(database) if row.kind != "external"]
        for queue in own[:1]:
            _ = describe(database, queue).poll
        return f"{session.settings.target}, {len(own)} queues" + (f"; {own[0]} can be streamed" if own else "")


def metrics(
    session: Session,
    archive: Annotated[
        str | None, typer.Argument(metavar="[DIR]", help="The archive. Omit it with --live.", show_default=False)
    ] = None,
    live: Annotated[
        str | None,
        typer.Option(
            "--live",
            metavar="QUEUE",
            help="Measure a stream of this audit queue and write the result to --out.",
            autocompletion=queue_names,
        ),
    ] = None,
    out: OutOption = None,
    every: Annotated[
        str | None,
        typer.Option(
            "--every", metavar="DURATION", help="With --live: keep running and poll at this interval, such as 10s."
        ),
    ] = None,
    late: Annotated[
        str,
        typer.Option(
            "--late", metavar="DURATION", help="With --live: how long an hour waits for its messages after its end."
        ),
    ] = "10m",
    by: Annotated[
        str, typer.Option("--by", metavar="hour|day|month", help="Merge the hours to days or months.")
    ] = "hour",
    count: SampleOption = SHOWN,
    *,
    stream: StreamOptions,
    options: SparkOptions,
) -> None:
    """Show throughput, processing time and critical time by hour, endpoint and message type."""
    if live is not None and out is not None and archive is None:
        doing, waits = f"metrics of {session.name(live)}", (every, late)
        with (
            stream.receivers(session) as receive,
            session.deployed(),
            running(session, options, doing, ui=stream.ui) as spark,
        ):
            return _live(session, spark, session.stream_name(live), out, waits, [*receive, *stream.in_spark(spark)])
    if archive is None or live is not None or stream.progress or stream.prometheus:
        raise Refused(
            "Name an archive, or a queue with --live and a folder with --out. --progress and --prometheus need --live.",
            ExitCode.USAGE,
        )
    if by not in ("hour", "day", "month"):
        raise Refused(f"--by must be hour, day or month (got {by!r}).", ExitCode.USAGE)
    result_folder(out)
    with running(session, options, "metrics", archive, ui=stream.ui) as spark:
        from rowpost.spark.archive.schemas import ESSENTIAL
        from rowpost.spark.jobs.archive import read_archive
        from rowpost.spark.jobs.metrics import in_utc, merged, skipped
        from rowpost.spark.jobs.metrics import metrics as measured

        kept = read_archive(spark, archive, ESSENTIAL)
        hours, start = measured(kept), "hour" if by == "hour" else "period"
        df = hours if by == "hour" else merged(hours, "day" if by == "day" else "month")
        df = df.orderBy(start, "endpoint", "message_type")
        _written(df, out)
        rows = df.drop("processing_ms_sketch", "critical_ms_sketch").collect()
        left_out = skipped(kept)
    of = ("endpoint", "message_type", "messages", "failed")
    times = [f"{kind}_ms_{p}" for kind in ("processing", "critical") for p in ("p50", "p95", "p99")]
    names = ("endpoint", "message type", "messages", "failed", "processing p50", "p95", "p99", "critical p50")
    form = "%Y-%m-%d %H:%M" if by == "hour" else "%Y-%m-%d"
    cells = [(f"{in_utc(row[start]):{form}}", *(row[name] for name in (*of, *times))) for row in rows[-count:]]
    session.rows((f"{by} (UTC)", *names, "p95 ", "p99 "), cells)
    messages, failed, clamped = (sum(row[name] for row in rows) for name in ("messages", "failed", "clamped"))
    counted = {"messages": messages, "failed": failed, "skipped": left_out, "clamped": clamped}
    session.counts({"rows": len(rows), **counted, "out": out})


def _live(
    session: Session, spark: SparkSession, queue: str, out: str, times: tuple[str | None, str], receive: list[Receiver]
) -> None:
    from rowpost.archive.table import create_table
    from rowpost.spark.archive.schemas import LIVE
    from rowpost.spark.explain import keep_running
    from rowpost.spark.jobs.archive import follow, trigger_of
    from rowpost.spark.jobs.metrics import Lateness, start_live

    every, late = (None if text is None else trigger_of(parse_duration(text)) for text in times)
    checkpoint = f"{create_table(out, LIVE.json()).path}/_rowpost/checkpoint"
    lateness = Lateness(checkpoint)
    counted: dict[int, int] = {}

    def run() -> dict[str, int]:
        query = start_live(
            spark, queue, out, checkpoint, environment=session.environment, every=every, lateness=late or "0 seconds"
        )
        return follow(query, session.counter("{of} messages measured in {done} batches"), receive, lateness, counted)

    done = run() if every is None else keep_running(run, counted, queue)
    if lateness.late:
        session.note(
            f"{lateness.late:,} messages came more than {times[1]} after their hour had ended, and are in no hour. "
            "To measure them, wait longer with --late, or compute the metrics from an archive."
        )
    session.counts({"queue": queue, "out": out, **done, "late": lateness.late, "skipped": lateness.skipped})


def conversations(
    session: Session,
    archive: ArchiveArgument,
    id: Annotated[
        str | None, typer.Option("--id", metavar="CONVERSATION", help="Print the tree of this conversation.")
    ] = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="With --id: print a Mermaid sequence diagram.")] = False,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write edges and conversations to this folder as Parquet, and replace what is there.",
        ),
    ] = None,
    count: SampleOption = SHOWN,
    *,
    options: SparkOptions,
) -> None:
    """Show which endpoints send which messages to each other. With --id, show one conversation."""
    folders = {part: None if out is None else f"{out.rstrip('/')}/{part}" for part in ("edges", "conversations")}
    for folder in folders.values():
        result_folder(folder)
    with running(session, options, "conversations", archive) as spark:
        from pyspark.sql import functions as F

        from rowpost.spark.archive.schemas import ESSENTIAL
        from rowpost.spark.jobs.archive import read_archive

        df = read_archive(spark, archive, ESSENTIAL)
        if id is not None:
            _one_conversation(session, df, id, mermaid)
            return
        from rowpost.spark.jobs.reports import conversations as summed
        from rowpost.spark.jobs.reports import edges

        sent, held = edges(df).cache(), summed(df).cache()
        _written(sent, folders["edges"])
        _written(held, folders["conversations"])
        rows = sent.orderBy("day", sent.messages.desc()).collect()
        (depths,) = held.agg(F.count("conversation_id"), F.max("depth"), F.sum("failed")).collect()
    names = ("day", "from", "to", "because of", "message", "intent", "messages", "latency p50", "p95")
    session.rows(names, rows[-count:])  # the columns of EDGES
    known, deepest, failed = depths
    counted = {"conversations": known, "deepest": deepest or 0, "failed": failed or 0}
    session.counts({"edges": len(rows), **counted, "out": out})


def _one_conversation(session: Session, df: DataFrame, id: str, mermaid: bool) -> None:
    from rowpost.spark.jobs.reports import one_conversation
    from rowpost.wire.conversation import depth, tree
    from rowpost.wire.conversation import mermaid as drawn

    steps = one_conversation(df, id)
    if not steps:
        raise Refused(f"The archive has no conversation {id!r}.", ExitCode.NOT_FOUND)
    lines = [drawn(steps)] if mermaid else tree(steps)
    if not session.as_json:
        for line in lines:
            session.out.print(Text(visible(line)), soft_wrap=True)
    levels = depth([(step.message_id, step.related_to) for step in steps])
    session.counts({"conversation": id, "messages": len(steps), "depth": levels}, tree="\n".join(lines))


def failures(
    session: Session,
    archive: Annotated[
        str | None, typer.Argument(metavar="[DIR]", help="The archive. Omit it with --queue.", show_default=False)
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue",
            metavar="QUEUE",
            help="Read the messages that are now in this error queue.",
            autocompletion=queue_names,
        ),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write the groups to this file as CSV.", dir_okay=False)
    ] = None,
    out: OutOption = None,
    count: SampleOption = SHOWN,
    *,
    options: SparkOptions,
) -> None:
    """Group failed messages by exception, endpoint and message type, with their trend."""
    if (archive is None) == (queue is None):
        raise Refused("Name an archive, or an error queue with --queue.", ExitCode.USAGE)
    result_folder(out)
    with session.deployed() if queue else nullcontext(), running(session, options, "failures", archive) as spark:
        from rowpost.spark.archive.headers import parse_headers
        from rowpost.spark.archive.schemas import ESSENTIAL
        from rowpost.spark.jobs.archive import read_archive, read_queue
        from rowpost.spark.jobs.metrics import in_utc
        from rowpost.spark.jobs.reports import failures as grouped
        from rowpost.spark.jobs.reports import write_csv

        if archive is not None:
            read = read_archive(spark, archive, ESSENTIAL)
        elif queue is not None:
            read = parse_headers(read_queue(spark, session.stream_name(queue), session.environment))
        df = grouped(read, datetime.now(UTC))
        _written(df, out)
        rows = df.collect()
    if csv is not None:
        write_csv(csv, rows)
    names = ("exception", "endpoint", "message type", "messages", "last 24 h", "before", "last seen (UTC)", "sample")
    of = ("exception_type", "endpoint", "message_type", "messages", "last_24h", "previous_24h")
    cells = [
        (
            *(row[name] for name in of),
            f"{in_utc(row.last_seen):%Y-%m-%d %H:%M}" if row.last_seen else "",
            (row.sample_message or "")[:80],
        )
        for row in rows[:count]
    ]
    session.rows(names, cells)
    counted = {name: sum(row[name] for row in rows) for name in ("messages", "last_24h", "previous_24h")}
    session.counts({"groups": len(rows), **counted, "csv": csv, "out": out})


def _written(df: DataFrame, out: str | None) -> None:
    if out is not None:
        df.write.mode("overwrite").options(partitionOverwriteMode="static", compression="zstd").parquet(out)
