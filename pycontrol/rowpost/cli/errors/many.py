"""rowpost errors retry-all, discard-all, move-all, edit-all: operations on all failed messages that match.

They are the operations of the dashboard: on record, cancelled from anywhere, and gone on with by
`rowpost operations resume`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Annotated

import msgspec
import typer

from rowpost.cli.bulk import execute, print_result
from rowpost.cli.command import YesOption
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
from rowpost.operations.bulk import WORDS, BulkOperation, FailedSelection, preview
from rowpost.operations.reading import preview_document
from rowpost.transport.changes import FailureChange
from rowpost.transport.failure_groups import Scan

__all__ = ["discard_all", "edit_all", "header_values", "move_all", "retry_all"]

DESTINATIONS = 10


@dataclass(frozen=True, kw_only=True)
class _Options:
    """The options that all bulk operations have."""

    queue: ErrorQueueOption = None
    failed_queue: FailedQueueOption = None
    exception: ExceptionOption = None
    message_type: TypeOption = None
    since: SinceOption = None
    cause: CauseOption = None
    reason: ReasonOption = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show which messages match, and change nothing.")] = False
    yes: YesOption = False

    def selection(self, session: Session) -> FailedSelection:
        """Return to which messages the operation applies. Raises Refused."""
        name = session.settings.supervisor.error_queue if self.queue is None else session.name(self.queue)
        return FailedSelection(
            name, failed_filter(session, self.failed_queue, self.exception, self.message_type, self.since), self.cause
        )


@dataclass(frozen=True, kw_only=True)
class _OptionsWithReason(_Options):
    """The same for an operation that needs a reason."""

    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why, for the record. Up to 400 characters.")
    ] = field()  # without the default of the option that may be left out


def retry_all(session: Session, options: _Options) -> ExitCode:
    """Move all matching messages back to the queues in which they failed. Exit code 1 if some could not be moved."""
    return _execute(session, options, FailureChange("retry"))


def discard_all(session: Session, options: _OptionsWithReason) -> ExitCode:
    """Delete all matching messages for good."""
    return _execute(session, options, FailureChange("discard"))


def move_all(
    session: Session,
    to: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue to which they go.", show_default=False)],
    options: _Options,
) -> ExitCode:
    """Move all matching messages, unchanged, to another queue than the one in which they failed."""
    return _execute(session, options, FailureChange("move", session.name(to)))


def edit_all(
    session: Session,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="Set a header. May be repeated.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove-header", metavar="NAME", help="Remove a header. May be repeated.")
    ] = None,
    to: ToOption = None,
    *,
    options: _Options,
) -> ExitCode:
    """Retry copies of all matching messages with other headers. Each copy gets a new id and refers to the original."""
    headers: dict[str, str | None] = {**header_values(header), **dict.fromkeys(remove or ())}
    return _execute(session, options, FailureChange("edit", None if to is None else session.name(to), headers))


def header_values(given: list[str] | None) -> dict[str, str | None]:
    """Return the headers of options NAME=VALUE. Raises Refused."""
    found: dict[str, str | None] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise Refused(f"--header needs NAME=VALUE (got {each!r}).", ExitCode.USAGE)
        found[name] = value
    return found


def _execute(session: Session, options: _Options, change: FailureChange) -> ExitCode:
    """Preview, ask, and execute to the end."""
    selection = options.selection(session)
    with session.deployed() as database:
        found = preview(database, selection)
        if options.dry_run:
            _print_preview(session, selection, change, found)
            return ExitCode.OK
        if found.matched:
            count = format_exact_count(found.matched)
            session.confirm(
                f"{WORDS[change.kind].verb} {count} in {session.settings.target} ({_where(change, found)})?",
                options.yes,
            )
            up_to = found.up_to if selection.up_to is None else selection.up_to
            operation = BulkOperation.begin(database, OPERATOR, replace(selection, up_to=up_to), change, options.reason)
            return execute(session, operation)
    print_result(session, WORDS[change.kind], None)
    return ExitCode.OK


def _where(change: FailureChange, found: Scan) -> str:
    """Return how many messages go where, or came from where."""
    if change.to is not None:
        return f"to {change.to}"
    counts: Counter[str] = Counter()
    for group in found.groups:
        counts[group.cause.failed_in or "?"] += group.count
    word = "from" if change.kind == "discard" else "to"
    return ", ".join(f"{count:,} {word} {name}" for name, count in counts.most_common(DESTINATIONS))


def _print_preview(session: Session, selection: FailedSelection, change: FailureChange, found: Scan) -> None:
    if session.as_json:
        session.document({"operation": change.kind, **msgspec.structs.asdict(preview_document(selection.queue, found))})
        return
    rows = [
        (
            each.count,
            each.cause.failed_in or "?",
            each.cause.exception_type or "?",
            each.cause.message_type,
            each.cause.key,
        )
        for each in found.groups
    ]
    table(session.out, ("messages", "failed in", "exception", "message type", "cause"), rows, right=("messages",))
    for each in found.messages:
        session.out.print(
            visible(
                f"for example row {each.row_version}, message {each.message_id}: "
                f"{' '.join(each.exception_message.split())[:80]}"
            ),
            soft_wrap=True,
        )
    where = f" ({_where(change, found)})" if found.matched else ""
    session.note(
        f"{WORDS[change.kind].verb} would change {format_exact_count(found.matched)} of {found.read:,} in "
        f"{selection.queue}{where}. Nothing was changed."
    )
