"""The forms that change something. Each ends with a page that says what was done."""

from __future__ import annotations

from urllib.parse import quote

from starlette.responses import Response

from rowpost.dashboard import reading
from rowpost.dashboard.visit import Handler, Visit
from rowpost.errors import InvalidCount, MessageError, QueueNotFound
from rowpost.wire.message import decode_headers

__all__ = ["ROUTES"]

LONGEST_REASON = 200


def counted(count: int) -> str:
    """Return a number of messages as a text."""
    return f"{count:,} message{'' if count == 1 else 's'}"


def purge(visit: Visit) -> Response:
    """Delete the messages of a queue, if its name was typed."""
    name = visit.request.path_params["name"]
    if visit.argument("confirm") != name:
        known = visit.site.monitor.find(name)
        wrong = f"Nothing was deleted. To purge the queue, type its name: {name}"
        return visit.page(
            "purge.html", 400, queue=reading.queue_document(known, visit.site.settings), may=visit.may("purge_queue", name), wrong=wrong
        )
    with visit.site.pool.connection() as database:
        purged = visit.operation(database).purge(name)
    rest = "" if purged.ended else " More messages wait: purge again to delete them."
    return visit.back("/", f"Deleted {counted(purged.deleted)} from {name}.{rest}")


def control(visit: Visit) -> Response:
    """Pause, resume or limit a queue."""
    name, reason = visit.request.path_params["name"], visit.argument("reason")[:LONGEST_REASON] or None
    limit, shared = visit.number("limit"), bool(visit.argument("shared"))
    with visit.site.pool.connection() as database:
        operation = visit.operation(database)
        match visit.argument("operation"):
            case "pause":
                operation.pause(name, reason)
                text = f"Paused {name}: supervisors receive nothing new from it within a peek delay."
            case "resume":
                operation.resume(name, reason)
                text = f"Resumed {name}."
            case "limit" if limit:
                operation.limit(name, limit, reason, shared=shared)
                text = f"{name} has at most {limit} workers in {'all supervisors together' if shared else 'each supervisor'}."
            case "clear":
                operation.limit(name, None, reason, shared=False)
                text = f"{name} has as many workers as its environments say."
            case _:
                raise InvalidCount("The form does not say what to do, or the limit is no number above 0. Nothing was changed.")
    return visit.back(f"/queue/{quote(name, safe='@[]')}", text)


def delayed(visit: Visit) -> Response:
    """Let a delayed message be due now, or cancel it, if the form says why."""
    name, key, reason = visit.request.path_params["name"], visit.argument("key"), visit.argument("reason")[:LONGEST_REASON]
    with visit.site.pool.connection() as database:
        operation = visit.operation(database)
        match visit.argument("operation"):
            case "send-now":
                operation.send_now(name, key)
                text = "The delayed message is due now: a supervisor of the queue moves it at its next look."
            case "cancel" if reason:
                operation.cancel(name, key, reason)
                text = "Cancelled the delayed message."
            case "cancel":
                raise InvalidCount("Nothing was cancelled: write why.")
            case _:
                raise InvalidCount("The form does not say what to do. Nothing was changed.")
    return visit.back(f"/queue/{quote(name, safe='@[]')}", text)


def retry(visit: Visit) -> Response:
    """Move a failed message back."""
    row = visit.request.path_params["row"]
    with visit.site.pool.connection() as database:
        to = visit.operation(database).retry(visit.error_queue, row)
    return visit.back("/failed", f"Moved message {row} to {to}.", queue=visit.error_queue)


def discard(visit: Visit) -> Response:
    """Remove a failed message for good, if the form says why."""
    row, reason = visit.request.path_params["row"], visit.argument("reason")
    with visit.site.pool.connection() as database:
        if not reason and visit.may("receive_message", visit.error_queue):
            found = reading.failed_detail(database, visit.error_queue, row)
            return visit.page("discard.html", 400, found=found, queue=visit.error_queue, may=True, wrong="Nothing was discarded: write why.")
        visit.operation(database).discard(visit.error_queue, row, reason[:LONGEST_REASON])
    return visit.back("/failed", f"Discarded message {row}.", queue=visit.error_queue)


def edit(visit: Visit) -> Response:
    """Send an edited copy of a failed message; a mistake shows the form again, as it was filled."""
    row, to = visit.request.path_params["row"], visit.argument("to") or None
    may = visit.may("receive_message", visit.error_queue)
    with visit.site.pool.connection() as database:
        found = reading.failed_detail(database, visit.error_queue, row)
        try:
            headers = decode_headers(visit.form.get("headers", "").strip())
            done = visit.operation(database).edit(visit.error_queue, row, _body(visit, reading.editable_body(found.message)), headers, to)
        except (MessageError, QueueNotFound) as error:
            return visit.page(
                "edit.html", 400, found=found, queue=visit.error_queue, may=may, problem=str(error),
                headers=visit.form.get("headers", ""), body=visit.form.get("body"), to=to or "",
            )  # fmt: skip
    return visit.back("/failed", f"Sent the edited copy of message {row} to {done}.", queue=visit.error_queue)


def _body(visit: Visit, original: str | None) -> bytes | None:
    """Return the edited body; None if it was not offered for editing.

    Browsers send CR LF at each end of a line, whatever the text had.
    """
    body = visit.form.get("body")
    if body is None or original is None:
        return None
    return (body if "\r\n" in original else body.replace("\r\n", "\n")).encode()


ROUTES: tuple[tuple[str, Handler], ...] = (
    ("/purge/{name:path}", purge),
    ("/control/{name:path}", control),
    ("/delayed/{name:path}", delayed),
    ("/failed/{row:int}/retry", retry),
    ("/failed/{row:int}/discard", discard),
    ("/failed/{row:int}/edit", edit),
)
