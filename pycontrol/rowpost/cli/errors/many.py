"""rowpost errors retry-all, discard-all, move-all, edit-all: operations on all failed messages that match.

They are the operations of the dashboard: on record, cancelled from anywhere, and gone on with by `rowpost operations resume`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Annotated

import typer

from rowpost.cli.bulk import execute, print_result
from rowpost.cli.command import YesOption, command
from rowpost.cli.errors.options import (
    CauseOption,
    ErrorQueueOption,
    ExceptionOption,
    FailedQueueOption,
    ReasonOption,
    SinceOption,
    ToOption,
    TypeOption,
    failed_filter,
)
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.formats import format_exact_count
from rowpost.cli.printing import table, visible
from rowpost.cli.session import OPERATOR, Session
from rowpost.transport.bulk_operations import BulkOperation, Selection, preview
from rowpost.transport.changes import Change
from rowpost.transport.failure_groups import Scan

__all__ = ["header_values", "register"]

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show which messages match, and change nothing.")]
DESTINATIONS = 10


def register(app: typer.Typer) -> None:
    """Add the commands to the group."""
    command(app, "retry-all")(retry_all)
    command(app, "discard-all")(discard_all)
    command(app, "move-all")(move_all)
    command(app, "edit-all")(edit_all)


def retry_all(
    session: Session,
    queue: ErrorQueueOption = None,
    failed_queue: FailedQueueOption = None,
    exception: ExceptionOption = None,
    message_type: TypeOption = None,
    since: SinceOption = None,
    cause: CauseOption = None,
    reason: ReasonOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> ExitCode:
    """Move all matching messages back to the queues in which they failed. Exit code 1 if some could not be moved."""
    selection = _selection(session, queue, failed_queue, exception, message_type, since, cause)
    return _operation(session, selection, Change("retry"), reason, dry_run, yes)


def discard_all(
    session: Session,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record. Up to 400 characters.", show_default=False)],
    queue: ErrorQueueOption = None,
    failed_queue: FailedQueueOption = None,
    exception: ExceptionOption = None,
    message_type: TypeOption = None,
    since: SinceOption = None,
    cause: CauseOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> ExitCode:
    """Delete all matching messages for good."""
    selection = _selection(session, queue, failed_queue, exception, message_type, since, cause)
    return _operation(session, selection, Change("discard"), reason, dry_run, yes)


def move_all(
    session: Session,
    to: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue to which they go.", show_default=False)],
    queue: ErrorQueueOption = None,
    failed_queue: FailedQueueOption = None,
    exception: ExceptionOption = None,
    message_type: TypeOption = None,
    since: SinceOption = None,
    cause: CauseOption = None,
    reason: ReasonOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> ExitCode:
    """Move all matching messages, unchanged, to another queue than the one in which they failed."""
    selection = _selection(session, queue, failed_queue, exception, message_type, since, cause)
    return _operation(session, selection, Change("move", session.name(to)), reason, dry_run, yes)


def edit_all(
    session: Session,
    header: Annotated[list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="Set a header. May be repeated.")] = None,
    remove: Annotated[list[str] | None, typer.Option("--remove-header", metavar="NAME", help="Remove a header. May be repeated.")] = None,
    queue: ErrorQueueOption = None,
    failed_queue: FailedQueueOption = None,
    exception: ExceptionOption = None,
    message_type: TypeOption = None,
    since: SinceOption = None,
    cause: CauseOption = None,
    to: ToOption = None,
    reason: ReasonOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> ExitCode:
    """Retry copies of all matching messages with other headers. Each copy gets a new id and refers to the original."""
    selection = _selection(session, queue, failed_queue, exception, message_type, since, cause)
    headers: dict[str, str | None] = {**header_values(header), **dict.fromkeys(remove or ())}
    change = Change("edit", None if to is None else session.name(to), headers)
    return _operation(session, selection, change, reason, dry_run, yes)


def header_values(given: list[str] | None) -> dict[str, str | None]:
    """Return the headers of options NAME=VALUE. Raises Refused."""
    found: dict[str, str | None] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise Refused(f"--header needs NAME=VALUE (got {each!r}).", ExitCode.USAGE)
        found[name] = value
    return found


def _selection(
    session: Session,
    queue: str | None,
    failed_queue: str | None,
    exception: str | None,
    message_type: str | None,
    since: str | None,
    cause: str | None,
) -> Selection:
    name = session.settings.supervisor.error_queue if queue is None else session.name(queue)
    return Selection(name, failed_filter(session, failed_queue, exception, message_type, since), cause)


def _operation(session: Session, selection: Selection, change: Change, reason: str | None, dry_run: bool, yes: bool) -> ExitCode:
    """Preview, ask, and execute to the end."""
    with session.deployed() as database:
        found = preview(database, selection)
        if dry_run:
            _print_preview(session, selection, change, found)
            return ExitCode.OK
        if found.matched:
            session.confirm(f"{_verb(change)} {format_exact_count(found.matched)} in {session.settings.target} ({_where(change, found)})?", yes)
            up_to = found.up_to if selection.up_to is None else selection.up_to
            operation = BulkOperation.begin(database, OPERATOR, replace(selection, up_to=up_to), change, reason)
            return execute(session, operation)
    print_result(session, change.kind, None)
    return ExitCode.OK


def _verb(change: Change) -> str:
    return {"retry": "Retry", "discard": "Delete", "move": "Move", "edit": "Edit and retry"}[change.kind]


def _where(change: Change, found: Scan) -> str:
    """Return how many messages go where, or came from where."""
    if change.to is not None:
        return f"to {change.to}"
    counts: Counter[str] = Counter()
    for group in found.groups:
        counts[group.cause.failed_in or "?"] += group.count
    word = "from" if change.kind == "discard" else "to"
    return ", ".join(f"{count:,} {word} {name}" for name, count in counts.most_common(DESTINATIONS))


def _print_preview(session: Session, selection: Selection, change: Change, found: Scan) -> None:
    if session.as_json:
        groups = [
            {
                "cause": each.cause.key,
                "messages": each.count,
                "failed_queue": each.cause.failed_in or None,
                "exception_type": each.cause.exception_type or None,
            }
            for each in found.groups
        ]
        examples = [
            {"row_version": each.row_version, "message_id": each.message_id, "exception": each.exception_message or None} for each in found.messages
        ]
        session.document(
            {"operation": change.kind, "queue": selection.queue, "matched": found.matched, "read": found.read, "groups": groups, "examples": examples}
        )
        return
    rows = [
        (each.count, each.cause.failed_in or "?", each.cause.exception_type or "?", each.cause.message_type, each.cause.key) for each in found.groups
    ]
    table(session.out, ("messages", "failed in", "exception", "message type", "cause"), rows, right=("messages",))
    for each in found.messages:
        session.out.print(
            visible(f"for example row {each.row_version}, message {each.message_id}: {' '.join(each.exception_message.split())[:80]}"), soft_wrap=True
        )
    where = f" ({_where(change, found)})" if found.matched else ""
    session.note(
        f"{_verb(change)} would change {format_exact_count(found.matched)} of {found.read:,} in {selection.queue}{where}. Nothing was changed."
    )
