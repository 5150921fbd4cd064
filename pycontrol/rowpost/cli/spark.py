"""rowpost spark doctor, metrics, conversations, failures, retain, compact, verify: what looks at an archive, or after it."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from rowpost.cli.command import command
from rowpost.cli.completion import queue_names
from rowpost.cli.durations import parse_duration
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.printing import table, visible
from rowpost.cli.session import Session
from rowpost.cli.sparking import ArchiveArgument, ConfOption, MasterOption, counter, counts, local_folder, running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rowpost.database.connection import Connection

__all__ = ["app"]

app = typer.Typer(help="Keep, measure and bring back messages, on Spark: pip install 'rowpost[spark]'.", no_args_is_help=True)

SHOWN = 40
SampleOption = Annotated[int, typer.Option("--count", "-n", min=1, help="How many rows to print.")]
OutOption = Annotated[str | None, typer.Option("--out", metavar="DIR", help="Write the result there as Parquet, in place of what is there.")]
PlotOption = Annotated[Path | None, typer.Option("--plot", metavar="PNG", help="Draw it into this file.", dir_okay=False)]


@command(app)
def doctor(session: Session, master: MasterOption = None, conf: ConfOption = None) -> ExitCode:
    """Check what Spark needs here: packages, Java, a session, a worker, the database. Exit code 1 if something is wrong."""
    from rowpost.spark.doctor import look_around, try_session
    from rowpost.spark.session import session as start

    checks = list(look_around())
    if not any(check.state == "bad" for check in checks):
        with running(session, master, conf, "doctor"):
            checks += try_session(start, lambda: _database(session))
    bad = [check for check in checks if check.state == "bad"]
    if not session.as_json:
        table(session.out, ("what", "state", "found", "what to do"), [(c.name, c.state, c.found, c.advice) for c in checks])
    counts(session, {"healthy": not bad, "bad": len(bad), "checks": [check.__dict__ for check in checks]})
    return ExitCode.FINDING if bad else ExitCode.OK


def _database(session: Session) -> str:
    """Where it is, and that a stream may look at a queue there: the procedure and the rights of the horizon."""
    with session.deployed() as database:
        own = [row.queue_name for row in database.call("list_queues") if row.kind != "external"]
        for queue in own[:1]:
            database.call("describe_stream", queue)
        return f"{session.settings.target}, {len(own)} queues" + (f"; {own[0]} can be streamed" if own else "")


@command(app)
def metrics(
    session: Session,
    archive: Annotated[str | None, typer.Argument(metavar="[DIR]", help="The archive; none with --live.", show_default=False)] = None,
    live: Annotated[str | None, typer.Option("--live", metavar="QUEUE", help="Of this audit queue's stream, into --out.", autocompletion=queue_names)] = None,
    out: OutOption = None,
    plot: PlotOption = None,
    every: Annotated[str | None, typer.Option("--every", metavar="SPAN", help="With --live: go on, looking so often, such as 10s.")] = None,
    count: SampleOption = SHOWN,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Show throughput, processing and critical time by hour, endpoint and message type."""
    if (archive is None) == (live is None) or (live is not None and out is None):
        raise Refused("Name an archive, or a queue by --live and a folder by --out.", ExitCode.USAGE)
    if live is not None:
        return _live(session, session.name(live), out, every, master, conf)
    local_folder(archive)
    with running(session, master, conf, "metrics") as spark:
        from rowpost.spark.archive.plots import plot_metrics
        from rowpost.spark.jobs.archive import read_archive
        from rowpost.spark.jobs.metrics import metrics as measured
        from rowpost.spark.jobs.metrics import skipped

        kept = read_archive(spark, archive)
        df = measured(kept).orderBy("hour", "endpoint", "message_type")
        _written(df, out)
        rows = [row.asDict() for row in df.collect()]
        left_out = skipped(kept)
    if plot is not None:
        plot_metrics(rows, plot)
    if not session.as_json:
        shown = rows[-count:]
        names = ("hour", "endpoint", "message type", "messages", "failed", "processing p50", "p95", "p99", "critical p50", "p95 ", "p99 ")
        cells = [(f"{r['hour']:%Y-%m-%d %H:%M}", r["endpoint"], r["message_type"], f"{r['messages']:,}", f"{r['failed']:,}",
                  *(_ms(r[f"{kind}_ms_{p}"]) for kind in ("processing", "critical") for p in ("p50", "p95", "p99"))) for r in shown]  # fmt: skip
        table(session.out, names, cells, right=names[3:])
    counts(session, {"rows": len(rows), "messages": sum(r["messages"] for r in rows), "failed": sum(r["failed"] for r in rows),
                     "skipped": left_out, "clamped": sum(r["clamped"] for r in rows), "out": out, "plot": plot})  # fmt: skip


def _live(session: Session, queue: str, out: str, every: str | None, master: str | None, conf: list[str] | None) -> None:
    with session.deployed(), running(session, master, conf, f"metrics of {queue}") as spark:
        from rowpost.spark.jobs.archive import follow, trigger_of
        from rowpost.spark.jobs.metrics import start_live

        span = None if every is None else trigger_of(parse_duration(every))
        query = start_live(spark, queue, out, f"{out.rstrip('/')}/_rowpost/checkpoint", environment=session.environment, every=span)
        done = follow(query, counter(session, "{of} messages measured in {done} batches"))
    counts(session, {"queue": queue, "out": out, **done})


@command(app)
def conversations(
    session: Session,
    archive: ArchiveArgument,
    id: Annotated[str | None, typer.Option("--id", metavar="CONVERSATION", help="Print the tree of this one.")] = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="With --id: as a Mermaid sequence diagram.")] = False,
    out: Annotated[str | None, typer.Option("--out", metavar="DIR", help="Write edges and conversations there as Parquet, in place of what is there.")] = None,
    count: SampleOption = SHOWN,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Show who sends what to whom; with --id, one conversation as a tree or a diagram."""
    local_folder(archive)
    with running(session, master, conf, "conversations") as spark:
        from rowpost.spark.jobs.archive import read_archive

        df = read_archive(spark, archive)
        if id is not None:
            _one_conversation(session, df, id, mermaid)
            return
        from rowpost.spark.jobs.conversations import conversations as summed
        from rowpost.spark.jobs.conversations import edges

        sent, held = edges(df).cache(), summed(df).cache()
        _written(sent, None if out is None else f"{out.rstrip('/')}/edges")
        _written(held, None if out is None else f"{out.rstrip('/')}/conversations")
        rows = sent.orderBy("day", sent.messages.desc()).collect()
        depths = held.agg({"conversation_id": "count", "depth": "max", "failed": "sum"}).first()
    if not session.as_json:
        names = ("day", "from", "to", "because of", "message", "intent", "messages", "latency p50", "p95")
        cells = [(r.day, r.from_endpoint, r.to_endpoint, r.from_type, r.to_type, r.intent, f"{r.messages:,}", _ms(r.latency_ms_p50), _ms(r.latency_ms_p95))
                 for r in rows[-count:]]  # fmt: skip
        table(session.out, names, cells, right=names[6:])
    counts(session, {"edges": len(rows), "conversations": depths["count(conversation_id)"], "deepest": depths["max(depth)"] or 0,
                     "failed": depths["sum(failed)"] or 0, "out": out})  # fmt: skip


def _one_conversation(session: Session, df: DataFrame, id: str, mermaid: bool) -> None:
    from rowpost.spark.archive.conversation_tree import depth, tree
    from rowpost.spark.archive.conversation_tree import mermaid as drawn
    from rowpost.spark.jobs.conversations import one_conversation

    steps = one_conversation(df, id)
    if not steps:
        raise Refused(f"The archive has no conversation {id!r}.", ExitCode.NOT_FOUND)
    lines = [drawn(steps)] if mermaid else tree(steps)
    if not session.as_json:
        for line in lines:
            session.out.print(Text(visible(line)), soft_wrap=True)
    shown = {"tree": "\n".join(lines)} if session.as_json else {}
    counts(session, {"conversation": id, "messages": len(steps), "depth": depth([(s.message_id, s.related_to) for s in steps]), **shown})


@command(app)
def failures(
    session: Session,
    archive: Annotated[str | None, typer.Argument(metavar="[DIR]", help="The archive; none with --queue.", show_default=False)] = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="Read this error queue as it is now.", autocompletion=queue_names)] = None,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the groups as CSV.", dir_okay=False)] = None,
    plot: PlotOption = None,
    out: OutOption = None,
    count: SampleOption = SHOWN,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Show what fails: groups by exception, endpoint and message type, and whether they grow."""
    if (archive is None) == (queue is None):
        raise Refused("Name an archive, or an error queue by --queue.", ExitCode.USAGE)
    if archive is not None:
        local_folder(archive)
    with session.deployed() if queue else nullcontext(), running(session, master, conf, "failures") as spark:
        from rowpost.spark.archive.plots import plot_failures
        from rowpost.spark.jobs.archive import read_archive
        from rowpost.spark.jobs.failures import failures as grouped
        from rowpost.spark.jobs.failures import write_csv

        df = grouped(read_archive(spark, archive) if queue is None else _error_queue(session, spark, queue), datetime.now(UTC))
        _written(df, out)
        rows = df.collect()
    if csv is not None:
        write_csv(csv, rows)
    if plot is not None:
        plot_failures([row.asDict() for row in rows], plot)
    if not session.as_json:
        names = ("exception", "endpoint", "message type", "messages", "last 24 h", "before", "last seen", "sample")
        cells = [(r.exception_type, r.endpoint, r.message_type, f"{r.messages:,}", f"{r.last_24h:,}", f"{r.previous_24h:,}",
                  f"{r.last_seen:%Y-%m-%d %H:%M}" if r.last_seen else "", (r.sample_message or "")[:80]) for r in rows[:count]]  # fmt: skip
        table(session.out, names, cells, right=names[3:6])
    counts(session, {"groups": len(rows), "messages": sum(r.messages for r in rows), "last_24h": sum(r.last_24h for r in rows),
                     "previous_24h": sum(r.previous_24h for r in rows), "csv": csv, "plot": plot, "out": out})  # fmt: skip


def _error_queue(session: Session, spark: SparkSession, queue: str) -> DataFrame:
    from rowpost.spark.archive.headers import parse_headers
    from rowpost.spark.jobs.archive import read_queue

    return parse_headers(read_queue(spark, session.name(queue), session.environment))


@command(app)
def retain(
    session: Session,
    archive: ArchiveArgument,
    policy: Annotated[Path, typer.Argument(metavar="POLICY", help="A YAML file of rules: see the guide on Spark.", exists=True, dir_okay=False)],
    apply: Annotated[bool, typer.Option("--apply", help="Do it; without, only what would be done is shown.")] = False,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Delete or redact what an archive need not keep. Shows it first: nothing changes without --apply."""
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
            session.note("Nothing was changed: say --apply to do this." if steps else "Nothing to do.")
    counts(session, {"applied": apply, "planned": sum(s["messages"] for s in steps), **done, **({"steps": steps} if session.as_json else {})})


@command(app)
def compact(
    session: Session,
    archive: ArchiveArgument,
    older_than: Annotated[str, typer.Option("--older-than", metavar="SPAN", help="Only batches written so long ago.")] = "2d",
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Put the many small batches of a day together. Run it while no job reads the archive."""
    span = parse_duration(older_than)
    local_folder(archive)
    with running(session, master, conf, "compact") as spark:
        from rowpost.spark.jobs import compact as job

        done = job.run(spark, archive, datetime.now(UTC), span, counter(session, "{done} of {of} days"))
    counts(session, done)


@command(app)
def verify(
    session: Session,
    archive: ArchiveArgument,
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Compare with what this queue holds now.", autocompletion=queue_names, show_default=False)] = None,
    sweep: Annotated[bool, typer.Option("--sweep", help="First remove what killed writers left; only while nobody writes.")] = False,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> ExitCode:
    """Check an archive: counts, messages twice, batches missing, unreadable files, leftovers. Exit code 1 with a finding."""
    local_folder(archive)
    name = None if queue is None else session.name(queue)
    with nullcontext() if name is None else session.deployed() as database, running(session, master, conf, "verify") as spark:
        from rowpost.spark.archive.folder import ArchiveFolder
        from rowpost.spark.jobs import verify as job
        from rowpost.spark.jobs.archive import read_queue

        swept = ArchiveFolder(archive).sweep() if sweep else []
        waiting = None if name is None else read_queue(spark, name, session.environment, columns=("id", "row_version"))
        report = job.run(spark, archive, waiting, name)
        spooled = {} if database is None else {"spooled": _spooled(database, name)}
    if not session.as_json:
        table(session.out, ("queue", "day", "messages", "bytes"), [(q, d, f"{n:,}", f"{b:,}") for q, d, n, b in report.days], right=("messages", "bytes"))
        if report.findings:
            table(session.out, ("finding", "what", "what to do"), [(f.kind, f.what, f.advice) for f in report.findings])
    details = {"details": [finding.__dict__ for finding in report.findings]} if session.as_json else {}
    counts(session, {**report.counts, **spooled, "swept": len(swept), **details})
    return ExitCode.FINDING if report.findings else ExitCode.OK


def _spooled(database: Connection, queue: str) -> int:
    """Messages that a drain took and has not let go: of the batch that it is writing, or that it was killed at."""
    rows = database.call("describe_spool", queue)
    first, last = rows[0][2:4] if rows else (None, None)
    return 0 if first is None else last - first + 1


def _written(df: DataFrame, out: str | None) -> None:
    if out is not None:
        df.write.mode("overwrite").option("partitionOverwriteMode", "static").parquet(out)


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f} ms"
