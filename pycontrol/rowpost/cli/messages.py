"""rowpost message show, conversation: what all tables know of one message, and of the messages that belong together."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from rowpost.cli.command import command
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.printing import table
from rowpost.cli.session import Session
from rowpost.database.moments import DistantTime
from rowpost.operations.message_life import Conversation, MessageLife, conversation, message_life
from rowpost.operations.reading import conversation_document, life_document
from rowpost.transport.message_search import LOOK_THROUGH
from rowpost.wire.conversation import mermaid, tree

__all__ = ["app"]

app = typer.Typer(
    help="Follow one message, or a conversation, through queues, audit, failures, outboxes and sagas.",
    no_args_is_help=True,
)

AllOption = Annotated[
    bool,
    typer.Option(
        "--all",
        help=f"Look through all messages of each queue, and not only the newest {LOOK_THROUGH:,}. Reads whole tables.",
    ),
]


@command(app)
def show(
    session: Session,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="The id of the message, or of its row.")],
    everything: AllOption = False,
) -> ExitCode:
    """Show what is known of a message: where it is, who handled it, why it failed, and what its handler sent.

    Exit code 1 if nothing is known.
    """
    with session.deployed() as database:
        life = message_life(
            database, session.settings, session.text(message), look_through=None if everything else LOOK_THROUGH
        )
    if session.as_json:
        session.document(life_document(life))
    else:
        _print(session, life)
    return ExitCode.OK if life.facts else ExitCode.FINDING


def _shown(at: datetime) -> str:
    """Return a time with milliseconds, or the database's text of one that Python does not have."""
    return str(at) if isinstance(at, DistantTime) else f"{at:%Y-%m-%d %H:%M:%S.%f}"[:-3]


def _print(session: Session, life: MessageLife) -> None:
    session.out.print(f"message {life.message_id}  {life.message_type}".rstrip(), soft_wrap=True)
    if life.conversation_id:
        session.out.print(f"conversation {life.conversation_id}", soft_wrap=True)
    rows = [
        ("" if fact.at is None else _shown(fact.at), fact.kind, fact.place, fact.row_version, fact.text, fact.related)
        for fact in life.facts
    ]
    if rows:
        table(session.out, ("when (UTC)", "what", "where", "row", "", "related"), rows, right=("row",))
    else:
        session.note("Nothing is known of it.")
    _say_limits(session, life)


@command(app, "conversation")
def show_conversation(
    session: Session,
    conversation_id: Annotated[
        str,
        typer.Argument(metavar="CONVERSATION", help="The id of the conversation, as the messages' headers name it."),
    ],
    everything: AllOption = False,
    as_mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid sequence diagram.")] = False,
) -> None:
    """Show the messages of a conversation as a tree: each below the message whose handler sent it.

    Handled messages are known from their audit copies. For those that were archived, use rowpost spark conversations.
    """
    with session.deployed() as database:
        found = conversation(database, session.text(conversation_id), look_through=None if everything else LOOK_THROUGH)
    if not found.steps and not session.as_json:
        _say_limits(session, found)
        raise Refused(f"No message of the conversation {conversation_id} was found.", ExitCode.NOT_FOUND)
    if session.as_json:
        session.document(conversation_document(found))
        return
    for line in [mermaid(found.steps)] if as_mermaid else tree(found.steps):
        session.out.print(line, soft_wrap=True)
    _say_limits(session, found)


def _say_limits(session: Session, found: MessageLife | Conversation) -> None:
    if found.unfinished:
        names = ", ".join(found.unfinished)
        session.note(f"Only the newest {LOOK_THROUGH:,} messages of {names} were looked through. For all, add --all.")
    if found.unseen:
        session.note(f"Not seen, because the login may not read it or it did not answer: {', '.join(found.unseen)}.")
