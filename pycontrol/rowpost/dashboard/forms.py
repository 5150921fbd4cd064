"""The forms that change something. Each ends with a page that says what was done."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from rowpost.dashboard import pages
from rowpost.dashboard.rendering import editable_body
from rowpost.dashboard.visit import Handler, Visit
from rowpost.errors import InvalidCount, MessageError, QueueNotFound
from rowpost.operations.delayed import CancelDelayed, SendNow
from rowpost.operations.failed import DiscardFailed, Edit, Retry
from rowpost.operations.operation import Operation
from rowpost.operations.purging import purge as purge_queue
from rowpost.operations.queues import Controlled, LimitWorkers, Pause, Resume, effect
from rowpost.operations.schedules import SCHEDULE_OPERATIONS
from rowpost.wire.message import decode_headers

__all__ = ["ROUTES"]

LONGEST_REASON = 200
#: seconds after which a purge stops between two transactions, so that its page comes back
LONGEST_S = 8.0


def purge(visit: Visit) -> Response:
    """Delete the messages of a queue for at most 8 seconds, if its name was typed."""
    name = visit.request.path_params["name"]
    if visit.argument("confirm") != name:
        return pages.purge(visit, 400, f"Nothing was deleted. To purge the queue, type its name: {name}")
    operator, end = visit.operator(), time.monotonic() + LONGEST_S
    with visit.site.pool.connection() as database, operator.line("purge", queue=name) as line:
        purged = purge_queue(database, operator, name, stop=lambda: "done" if time.monotonic() > end else None)
        line["deleted"] = purged.purged
    return visit.back(
        "/", purged.sentence + ("" if purged.ended else " More messages wait: purge again to delete them.")
    )


def control(visit: Visit) -> Response:
    """Pause, resume or limit a queue."""
    name = visit.request.path_params["name"]
    said = visit.execute(_control(visit, name)).sentence
    with visit.site.pool.connection() as database:
        return visit.back(f"/queue/{quote(name, safe='@[]')}", f"{said} {effect(database, [name])}".rstrip())


def _control(visit: Visit, name: str) -> Operation[Controlled]:
    reason, limit = visit.argument("reason")[:LONGEST_REASON] or None, visit.number("limit")
    match visit.argument("operation"):
        case "pause":
            return Pause(queue=name, reason=reason)
        case "resume":
            return Resume(queue=name, reason=reason)
        case "limit" if limit:
            return LimitWorkers(queue=name, reason=reason, limit=limit, shared=bool(visit.argument("shared")))
        case "clear":
            return LimitWorkers(queue=name, reason=reason, limit=None)
    raise InvalidCount("The form does not say what to do, or the limit is no number above 0. Nothing was changed.")


def schedule(visit: Visit) -> Response:
    """Pause or resume a schedule, or let a message of it be sent now."""
    name, wanted = visit.request.path_params["name"], visit.argument("operation")
    if wanted not in SCHEDULE_OPERATIONS:
        raise InvalidCount("The form does not say what to do. Nothing was changed.")
    return visit.back("/schedules", visit.execute(SCHEDULE_OPERATIONS[wanted](schedule=name)).sentence)


def delayed(visit: Visit) -> Response:
    """Let a delayed message be due now, or cancel it, if the form says why."""
    name = visit.request.path_params["name"]
    return visit.back(f"/queue/{quote(name, safe='@[]')}", visit.execute(_delayed(visit, name)).sentence)


def _delayed(visit: Visit, name: str) -> Operation[Any]:
    key, reason = visit.argument("key"), visit.argument("reason")[:LONGEST_REASON]
    match visit.argument("operation"):
        case "send-now":
            return SendNow(queue=name, key=key)
        case "cancel" if reason:
            return CancelDelayed(queue=name, key=key, reason=reason)
        case "cancel":
            raise InvalidCount("Nothing was cancelled: write why.")
    raise InvalidCount("The form does not say what to do. Nothing was changed.")


def retry(visit: Visit) -> Response:
    """Move a failed message back."""
    done = visit.execute(Retry(queue=visit.error_queue, row=visit.request.path_params["row"]))
    return visit.back("/failed", done.sentence, queue=visit.error_queue)


def discard(visit: Visit) -> Response:
    """Remove a failed message for good, if the form says why."""
    row, reason = visit.request.path_params["row"], visit.argument("reason")
    if not reason and visit.may(DiscardFailed.right, visit.error_queue):
        return pages.discard(visit, 400, "Nothing was discarded: write why.")
    done = visit.execute(DiscardFailed(queue=visit.error_queue, row=row, reason=reason[:LONGEST_REASON]))
    return visit.back("/failed", done.sentence, queue=visit.error_queue)


def edit(visit: Visit) -> Response:
    """Send an edited copy of a failed message; a mistake shows the form again, as it was filled."""
    row, to = visit.request.path_params["row"], visit.argument("to") or None
    found = pages.read_failure(visit)
    try:
        headers = decode_headers(visit.form.get("headers", "").strip())
        done = visit.execute(
            Edit(
                queue=visit.error_queue,
                row=row,
                body=_body(visit, editable_body(found.message)),
                headers=headers,
                to=to,
            )
        )
    except (MessageError, QueueNotFound) as error:
        headers_given, body_given = visit.form.get("headers", ""), visit.form.get("body")
        return pages.failure_page(
            visit, "edit.html", found, 400, problem=str(error), headers=headers_given, body=body_given, to=to or ""
        )
    return visit.back("/failed", done.sentence, queue=visit.error_queue)


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
    ("/schedule/{name:path}", schedule),
    ("/delayed/{name:path}", delayed),
    ("/failed/{row:int}/retry", retry),
    ("/failed/{row:int}/discard", discard),
    ("/failed/{row:int}/edit", edit),
)
