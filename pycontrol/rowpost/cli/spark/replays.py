"""rowpost spark replays list, cancel: the replays that an archive's folder knows. These commands start no Spark."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from rowpost.cli.command import YesOption, command
from rowpost.cli.printing import table
from rowpost.cli.session import Session
from rowpost.cli.spark.running import ArchiveArgument, imported, local_folder

if TYPE_CHECKING:
    from rowpost.spark.archive.replays import StoredReplay

__all__ = ["app"]

app = typer.Typer(help="Show the replays of an archive, and cancel one.", no_args_is_help=True)


@command(app, "list")
def list_(session: Session, folder: ArchiveArgument) -> None:
    """List replays with their state: choosing (without a plan: it is running, or was killed), sending, done or cancelled."""
    local_folder(folder)
    with imported():
        from rowpost.archive.folder import ArchiveFolder
        from rowpost.spark.archive.replays import list_replays

        found = list_replays(ArchiveFolder(folder))
    if session.as_json:
        session.document([asdict(each) for each in found])
    elif found:
        table(session.out, ("key", "state", "messages", "sent", "queue", "where"), [_row(each) for each in found], right=("messages", "sent"))
    else:
        session.out.print("There are no replays.")


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
    if session.as_json:
        session.document({"cancelled": True, **asdict(known)})
    else:
        again = "The key can be used again." if known.state == CHOOSING else "Messages that were sent stay in their queues."
        session.out.print(f"Cancelled the replay {key}. {again}", markup=False)


def _left(known: StoredReplay) -> str:
    return (
        "It has sent nothing." if known.messages is None else f"It has sent {known.sent:,} of {known.messages:,} messages; the others are not sent."
    )


def _row(found: StoredReplay) -> tuple[object, ...]:
    messages = "-" if found.messages is None else f"{found.messages:,}"
    queue = found.queue or ("-" if found.messages is None else "where each failed")
    return found.key, found.state, messages, f"{found.sent:,}", queue, found.where or "-"
