"""rowpost spark find: print archived messages by an id. It starts no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer
from rich.text import Text

from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.printing import message_document, print_message, visible
from rowpost.cli.session import Session
from rowpost.cli.spark.running import ArchiveArgument, imported, local_folder
from rowpost.wire.message import Message

if TYPE_CHECKING:
    from rowpost.archive.finding import ArchivedMessage

__all__ = ["find"]


def find(
    session: Session,
    archive: ArchiveArgument,
    id: Annotated[
        str, typer.Argument(metavar="ID", help="The id of a message, of its row in the queue, or of a conversation.")
    ],
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Maximum number of messages to print.")] = 40,
) -> None:
    """Print the archived messages with an id. Reads only the parts of files that can hold them, and starts no Spark."""
    local_folder(archive)
    with imported():
        from rowpost.archive.finding import find as search
        from rowpost.archive.table import open_table

        found = search(open_table(archive), id, count + 1)
    if not found:
        raise Refused(f"The archive has no message and no conversation with the id {id!r}.", ExitCode.NOT_FOUND)
    shown = found[:count]
    for each in () if session.as_json else shown:
        session.out.print(Text(visible(f"{each.queue}, {each.day}")), soft_wrap=True)
        print_message(session.out, _message(each))
    session.counts({"id": id, "messages": len(shown), "more": len(found) > count}, found=list(map(_document, shown)))


def _message(found: ArchivedMessage) -> Message:
    return Message(UUID(found.id), found.row_version, False, found.headers, found.body or b"")


def _document(found: ArchivedMessage) -> dict[str, Any]:
    document = message_document(found.queue, _message(found))
    del document["expired"]  # nothing expires in an archive
    return {"day": found.day.isoformat(), **document}
