"""Acts on many failed messages, and the record of all acts: pages, forms and the operations of the JSON interface."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.responses import Response

from rowpost.dashboard.act_documents import (
    ActDocument,
    ActPage,
    BulkPreview,
    CancelDocument,
    act_document,
    preview_document,
)
from rowpost.dashboard.visit import Handler, Visit
from rowpost.errors import InvalidCount, InvalidMessage, PermissionDenied, QueueNotFound
from rowpost.transport.acts import Actor, cancel_act, find_act, list_acts
from rowpost.transport.bulk_acts import BulkAct, Selection, preview
from rowpost.transport.changes import KINDS, Change
from rowpost.transport.error_queue import Filter
from rowpost.wire.since import parse_since

__all__ = ["FORMS", "PAGES", "failed_filter", "read_act", "read_acts", "read_preview", "request_cancel", "resume_one", "start"]

ACTS, MOST_ACTS = 50, 1_000
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
    return Filter(visit.argument("failed_queue") or None, visit.argument("exception") or None, visit.argument("type") or None, at)


def selection(visit: Visit) -> Selection:
    """Return to which messages an act applies, from the address or the form."""
    return Selection(visit.error_queue, failed_filter(visit), visit.argument("cause") or None, visit.number("after"), visit.number("up_to"))


def change(visit: Visit) -> Change:
    """Return what the form wants to do. Raises InvalidMessage, InvalidCount."""
    kind, to = _kind(visit), visit.argument("to") or None
    if kind == "discard" and not visit.argument("reason"):
        raise InvalidCount("Nothing was discarded: write why.")
    name = visit.argument("header")
    if kind == "edit" and not name:
        raise InvalidMessage("Nothing was edited: name a header.")
    headers: dict[str, str | None] = {name: None if visit.argument("remove") else visit.form.get("value", "")} if kind == "edit" else {}
    return Change(kind, to if kind in ("move", "edit") else None, headers)


def _kind(visit: Visit) -> str:
    kind = visit.argument("act")
    if kind not in KINDS:
        raise InvalidCount(f"There is no act {kind[:40]!r}: it is one of {', '.join(KINDS)}.")
    return kind


# ---------------------------------------------------------------------------------------------- read
def read_preview(visit: Visit) -> BulkPreview:
    """Return to which messages an act would apply, from the first 2,000 of the error queue."""
    with visit.site.pool.connection() as database:
        return preview_document(visit.error_queue, preview(database, selection(visit), PREVIEWED))


def read_acts(visit: Visit, count: int = ACTS) -> ActPage:
    """Return acts, the last one first."""
    with visit.site.pool.connection() as database:
        found = list_acts(database, count + 1 if count < MOST_ACTS else count, visit.number("before"))
    shown = [act_document(act) for act in found[:count]]
    return ActPage(shown, shown[-1].number if len(found) > count else None)


def read_act(visit: Visit, number: int) -> ActDocument:
    """Return one act. Raises ActNotFound."""
    with visit.site.pool.connection() as database:
        return act_document(find_act(database, number))


# ---------------------------------------------------------------------------------------------- act
def start(visit: Visit) -> int:
    """Begin an act in the background, and return its number."""
    _check_writable(visit)
    wanted, made, reason = selection(visit), change(visit), visit.argument("reason")[:LONGEST_REASON] or None
    actor = Actor("dashboard", visit.user)
    return visit.site.runner.start(lambda database: BulkAct.begin(database, actor, wanted, made, reason), visit.user)


def resume_one(visit: Visit, number: int) -> int:
    """Go on with an act in the background, and return its number."""
    _check_writable(visit)
    name = visit.argument("header")
    headers: dict[str, str | None] = {each.removeprefix(VALUE): text for each, text in visit.form.items() if each.startswith(VALUE)}
    if name:
        headers[name] = visit.form.get("value", "")
    return visit.site.runner.start(lambda database: BulkAct.resume(database, number, headers), visit.user)


def request_cancel(visit: Visit, number: int) -> CancelDocument:
    """Ask an act to stop, whichever process executes it."""
    _check_writable(visit)
    with visit.site.pool.connection() as database:
        return CancelDocument(cancel_act(database, number, visit.user))


def _check_writable(visit: Visit) -> None:
    if visit.site.read_only:
        raise PermissionDenied("This dashboard was started with --read-only: nothing was changed.")


# ---------------------------------------------------------------------------------------------- pages
def preview_page(visit: Visit) -> Response:
    """Show to which messages an act would apply, and ask."""
    return _preview(visit, 200, "")


def _preview(visit: Visit, status: int, wrong: str) -> Response:
    kind, found = _kind(visit), read_preview(visit)
    arguments = {name: visit.argument(name) for name in SELECTED if visit.argument(name)} | {"queue": found.queue}
    if found.up_to is not None:
        arguments["up_to"] = str(found.up_to)
    given = {name: visit.argument(name) for name in ("to", "header", "value", "reason")}
    return visit.page(
        "bulk.html", status, kind=kind, found=found, selected=arguments, given=given, wrong=wrong, may=visit.may("receive_message", found.queue),
        searched={name: text for name, text in arguments.items() if name in SELECTED[1:6]},
    )  # fmt: skip


def start_form(visit: Visit) -> Response:
    """Begin an act; a mistake shows the form again."""
    try:
        number = start(visit)
    except (InvalidMessage, InvalidCount, QueueNotFound) as error:
        if visit.argument("act") not in KINDS:
            raise
        return _preview(visit, 400, str(error))
    return visit.back(f"/act/{number}", f"Act {number} has begun.")


def acts_page(visit: Visit) -> Response:
    """Return the record."""
    return visit.page("acts.html", page=read_acts(visit))


def act_page(visit: Visit) -> Response:
    """One act, and how far it is."""
    act = read_act(visit, visit.request.path_params["number"])
    return visit.page("act.html", act=act, may=visit.may_call("cancel_act"), may_resume=visit.may_call("resume_act"))


def cancel_form(visit: Visit) -> Response:
    """Ask an act to stop."""
    number = visit.request.path_params["number"]
    done = request_cancel(visit, number).cancelled
    return visit.back(f"/act/{number}", "It stops after the messages that it changes now." if done else "It had already ended.")


def resume_form(visit: Visit) -> Response:
    """Go on with an act."""
    number = resume_one(visit, visit.request.path_params["number"])
    return visit.back(f"/act/{number}", f"Act {number} goes on.")


PAGES: tuple[tuple[str, Handler], ...] = (
    ("/failed/all", preview_page),
    ("/acts", acts_page),
    ("/act/{number:int}", act_page),
)
FORMS: tuple[tuple[str, Handler], ...] = (
    ("/failed/all", start_form),
    ("/act/{number:int}/cancel", cancel_form),
    ("/act/{number:int}/resume", resume_form),
)
