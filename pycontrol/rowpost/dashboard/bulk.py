"""Bulk operations and the operation log: what a request selects and changes, the pages and the forms."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.responses import Response

from rowpost.dashboard.visit import Handler, Visit
from rowpost.errors import InvalidCount, InvalidMessage, QueueNotFound
from rowpost.operations.bulk import WORDS, BulkOperation, CancelRequested, FailedSelection, preview, request_cancel
from rowpost.operations.documents import BulkPreview, OperationDocument
from rowpost.operations.log import find_operation
from rowpost.operations.reading import operation_document, operation_page, preview_document
from rowpost.operations.rights import Right
from rowpost.transport.changes import KINDS, FailureChange
from rowpost.transport.error_queue import Filter
from rowpost.wire.since import parse_since

__all__ = ["FORMS", "PAGES", "cancel", "failed_filter", "read_operation", "read_preview", "resume_one", "start"]

#: failed messages that a preview reads
PREVIEWED = 2_000
LONGEST_REASON = 200
#: how the names of a form's fields begin that hold the values of headers
VALUE = "value:"
SELECTED = ("queue", "failed_queue", "exception", "type", "since", "cause", "after", "up_to")


def failed_filter(visit: Visit) -> Filter:
    """Return the filter that the address names. Raises InvalidCount: the time cannot be read."""
    since = visit.argument("since")
    try:
        at = parse_since(since, datetime.now(UTC)) if since else None
    except ValueError as error:
        raise InvalidCount(str(error)) from None
    return Filter(
        visit.argument("failed_queue") or None, visit.argument("exception") or None, visit.argument("type") or None, at
    )


def selection(visit: Visit) -> FailedSelection:
    """Return to which messages an operation applies, from the address or the form."""
    return FailedSelection(
        visit.error_queue,
        failed_filter(visit),
        visit.argument("cause") or None,
        visit.number("after"),
        visit.number("up_to"),
    )


def change(visit: Visit) -> FailureChange:
    """Return what the form wants to do. Raises InvalidMessage, InvalidCount."""
    kind, to = _kind(visit), visit.argument("to") or None
    if kind == "discard" and not visit.argument("reason"):
        raise InvalidCount("Nothing was discarded: write why.")
    name = visit.argument("header")
    if kind == "edit" and not name:
        raise InvalidMessage("Nothing was edited: name a header.")
    headers: dict[str, str | None] = (
        {name: None if visit.argument("remove") else visit.form.get("value", "")} if kind == "edit" else {}
    )
    return FailureChange(kind, to if kind in ("move", "edit") else None, headers)


def _kind(visit: Visit) -> str:
    kind = visit.argument("operation")
    if kind not in KINDS:
        raise InvalidCount(f"There is no operation {kind[:40]!r}: it is one of {', '.join(KINDS)}.")
    return kind


# ---------------------------------------------------------------------------------------------- read
def read_preview(visit: Visit) -> BulkPreview:
    """Return to which messages an operation would apply, from the first 2,000 of the error queue."""
    with visit.site.pool.connection() as database:
        return preview_document(visit.error_queue, preview(database, selection(visit), PREVIEWED))


def read_operation(visit: Visit, number: int) -> OperationDocument:
    """Return one operation. Raises OperationNotFound."""
    with visit.site.pool.connection() as database:
        return operation_document(find_operation(database, number))


# ---------------------------------------------------------------------------------------------- operation
def start(visit: Visit) -> int:
    """Begin an operation in the background, and return its number."""
    operator = visit.operator()
    wanted, made, reason = selection(visit), change(visit), visit.argument("reason")[:LONGEST_REASON] or None
    return visit.site.runner.start(
        lambda database: BulkOperation.begin(database, operator, wanted, made, reason), visit.user
    )


def resume_one(visit: Visit, number: int) -> int:
    """Go on with an operation in the background, and return its number."""
    visit.operator()
    name = visit.argument("header")
    headers: dict[str, str | None] = {
        each.removeprefix(VALUE): text for each, text in visit.form.items() if each.startswith(VALUE)
    }
    if name:
        headers[name] = visit.form.get("value", "")
    return visit.site.runner.start(lambda database: BulkOperation.resume(database, number, headers), visit.user)


def cancel(visit: Visit, number: int) -> CancelRequested:
    """Ask an operation to stop, whichever process executes it."""
    operator = visit.operator()
    with visit.site.pool.connection() as database:
        return request_cancel(database, number, operator.user)


# ---------------------------------------------------------------------------------------------- pages
def preview_page(visit: Visit) -> Response:
    """Show to which messages an operation would apply, and ask."""
    return _preview(visit, 200, "")


def _preview(visit: Visit, status: int, wrong: str) -> Response:
    kind, found = _kind(visit), read_preview(visit)
    arguments = {name: visit.argument(name) for name in SELECTED if visit.argument(name)} | {"queue": found.queue}
    if found.up_to is not None:
        arguments["up_to"] = str(found.up_to)
    given = {name: visit.argument(name) for name in ("to", "header", "value", "reason")}
    return visit.page(
        "bulk.html",
        status,
        kind=kind,
        words=WORDS[kind],
        found=found,
        selected=arguments,
        given=given,
        wrong=wrong,
        may=visit.may(BulkOperation.right, found.queue),
        searched={name: text for name, text in arguments.items() if name in SELECTED[1:6]},
    )


def start_form(visit: Visit) -> Response:
    """Begin an operation; a mistake shows the form again."""
    try:
        number = start(visit)
    except (InvalidMessage, InvalidCount, QueueNotFound) as error:
        if visit.argument("operation") not in KINDS:
            raise
        return _preview(visit, 400, str(error))
    return visit.back(f"/operation/{number}", f"Operation {number} has begun.")


def operations_page(visit: Visit) -> Response:
    """Return the record."""
    with visit.site.pool.connection() as database:
        page = operation_page(database, before=visit.number("before"))
    return visit.page("operations.html", page=page)


def one_operation_page(visit: Visit) -> Response:
    """One operation, and how far it is."""
    operation = read_operation(visit, visit.request.path_params["number"])
    return visit.page(
        "operation.html", operation=operation, may=visit.may(Right.CANCEL), may_resume=visit.may(Right.RESUME)
    )


def cancel_form(visit: Visit) -> Response:
    """Ask an operation to stop."""
    number = visit.request.path_params["number"]
    return visit.back(f"/operation/{number}", cancel(visit, number).sentence)


def resume_form(visit: Visit) -> Response:
    """Go on with an operation."""
    number = resume_one(visit, visit.request.path_params["number"])
    return visit.back(f"/operation/{number}", f"Operation {number} goes on.")


PAGES: tuple[tuple[str, Handler], ...] = (
    ("/failed/all", preview_page),
    ("/operations", operations_page),
    ("/operation/{number:int}", one_operation_page),
)
FORMS: tuple[tuple[str, Handler], ...] = (
    ("/failed/all", start_form),
    ("/operation/{number:int}/cancel", cancel_form),
    ("/operation/{number:int}/resume", resume_form),
)
