"""rowpost spark replay: send messages from an archive. rowpost spark replays list, cancel: the replays of an archive,
without Spark.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from rowpost.cli.archiving import registered_queues
from rowpost.cli.command import YesOption, command
from rowpost.cli.completion import queue_names
from rowpost.cli.exits import CommandInterrupted, ExitCode, Refused
from rowpost.cli.formats import parse_duration
from rowpost.cli.session import Session
from rowpost.cli.spark.running import ArchiveArgument, SparkOptions, imported, local_folder, running
from rowpost.transport.maintenance import waiting

if TYPE_CHECKING:
    from rowpost.spark.archive.replays import StoredReplay

__all__ = ["app", "replay"]

app = typer.Typer(help="Show the replays of an archive, and cancel one.", no_args_is_help=True)


def replay(
    session: Session,
    folder: ArchiveArgument,
    job: Annotated[
        str,
        typer.Option(
            "--job",
            metavar="KEY",
            help="The key of this job. Messages are sent once per key, even if the job runs again.",
        ),
    ],
    queue: Annotated[
        str | None,
        typer.Argument(
            metavar="[QUEUE]",
            help="The destination. Omit it with --to-original.",
            autocompletion=queue_names,
            show_default=False,
        ),
    ] = None,
    to_original: Annotated[
        bool, typer.Option("--to-original", help="Send each message to the queue in which it failed.")
    ] = False,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="SQL",
            help=(
                "A SQL condition on the archive's columns, such as \"day = '2026-11-20' and exception_type like "
                "'%Timeout%'\"."
            ),
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Send only this many messages, the oldest first.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.01, help="Maximum number of messages per second.")
    ] = None,
    ramp: Annotated[
        str | None,
        typer.Option("--ramp", metavar="1,10,100", help="Send in steps of these sizes first, then the rest."),
    ] = None,
    pause: Annotated[
        str, typer.Option("--pause", metavar="DURATION", help="Wait this long after each step of --ramp.")
    ] = "10s",
    max_depth: Annotated[
        int | None,
        typer.Option(
            "--max-depth",
            metavar="N",
            min=1,
            help="Wait while the destination has more than N messages waiting, with those of the next step.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Count by destination and message type what would be sent, and send nothing."),
    ] = False,
    *,
    options: SparkOptions,
) -> None:
    """Send archived messages again, each once per job key. After a stop, run it again to continue."""
    if (queue is None) != to_original:
        raise Refused("Name the destination: a queue, or --to-original.", ExitCode.USAGE)
    steps = _ramp(ramp)
    local_folder(folder)
    with session.deployed() as database:
        resolve = partial(registered_queues, database, naming=session.settings.naming)
        name = None if queue is None else next(iter(resolve([session.name(queue)]).values()))
        with running(session, options, f"replay {job}") as spark:
            from rowpost.spark.jobs import replay as jobs

            asked = jobs.Replay(job, name, where, limit, rate, steps, parse_duration(pause).total_seconds(), max_depth)
            if dry_run:
                done = jobs.rehearse(spark, folder, asked, resolve)
            else:
                try:
                    done = jobs.run(
                        spark,
                        folder,
                        asked,
                        environment=session.environment,
                        resolve_queues=resolve,
                        progress=session.counter("{done} of {of} messages sent"),
                        depth=lambda queue: waiting(database, queue, max_depth or 0),
                    )
                except KeyboardInterrupt:
                    left = "some messages were sent; run the same command again to send the rest"
                    raise CommandInterrupted(left) from None
    if found := done.get("would_send"):
        rows = [(each["queue"], each["message_type"] or "-", each["messages"], each["body_bytes"]) for each in found]
        session.rows(("queue", "message type", "messages", "body bytes"), rows)
    session.counts(done)


def _ramp(text: str | None) -> tuple[int, ...]:
    parts = [] if text is None else text.split(",")
    if not all(part.strip().isascii() and part.strip().isdigit() and int(part) > 0 for part in parts):
        raise Refused(f"--ramp must be a list of positive numbers such as 1,10,100 (got {text!r}).", ExitCode.USAGE)
    return tuple(int(part) for part in parts)


@command(app, "list")
def list_(session: Session, folder: ArchiveArgument) -> None:
    """List replays with their state: choosing (without a plan: it is running, or was killed), sending, done or
    cancelled.
    """
    local_folder(folder)
    with imported():
        from rowpost.archive.folder import ArchiveFolder
        from rowpost.spark.archive.replays import list_replays

        found = list_replays(ArchiveFolder(folder))
    documents, rows = [asdict(each) for each in found], [_row(each) for each in found]
    columns = ("key", "state", "messages", "sent", "queue", "where")
    session.listing(documents, columns, rows, right=("messages", "sent"), none="There are no replays.", instead=True)


@command(app)
def cancel(
    session: Session,
    folder: ArchiveArgument,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The replay's key.")],
    yes: YesOption = False,
) -> None:
    """Send nothing more of a replay, and delete what it has stored. A run that is sending ends before its next step."""
    local_folder(folder)
    with imported():
        from rowpost.archive.folder import ArchiveFolder
        from rowpost.spark.archive.replays import CHOOSING, ReplayStore

        store = ReplayStore(ArchiveFolder(folder), key)
        known = store.look_up()
        session.confirm(f"Cancel the replay {key!r}? {_left(known)}", yes)
        known = store.cancel()
    again = "The key can be used again." if known.state == CHOOSING else "Messages that were sent stay in their queues."
    session.answer({"cancelled": True, **asdict(known)}, f"Cancelled the replay {key}. {again}", on_stdout=True)


def _left(known: StoredReplay) -> str:
    return (
        "It has sent nothing."
        if known.messages is None
        else f"It has sent {known.sent:,} of {known.messages:,} messages; the others are not sent."
    )


def _row(found: StoredReplay) -> tuple[object, ...]:
    messages = "-" if found.messages is None else f"{found.messages:,}"
    queue = found.queue or ("-" if found.messages is None else "where each failed")
    return found.key, found.state, messages, f"{found.sent:,}", queue, found.where or "-"
