"""The pages that show something. None of them changes or locks a message."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from rowpost.dashboard import api, charts
from rowpost.dashboard.bulk import failed_filter
from rowpost.dashboard.queue_documents import queue_document, queue_page
from rowpost.dashboard.rendering import editable_body
from rowpost.dashboard.visit import Handler, Visit
from rowpost.errors import FeatureMissing, PermissionDenied
from rowpost.operations import reading
from rowpost.operations.documents import FailedDetail, SagaInstances
from rowpost.operations.message_life import conversation
from rowpost.operations.rights import Right
from rowpost.operations.sagas import saga_detail, saga_instances
from rowpost.sagas.instances import as_id

__all__ = ["ROUTES", "discard", "failure_page", "purge", "read_failure"]


def queues(visit: Visit) -> Response:
    """All queues."""
    snapshot = visit.site.monitor.latest()
    sort = visit.argument("sort") if visit.argument("sort") in ("waiting", "age") else "name"
    page = queue_page(snapshot, visit.site.settings, visit.argument("search"), visit.argument("after"), sort)
    history = {each.queue: charts.chart(charts.depths(visit.site.monitor.history(each.queue))) for each in page.queues}
    return visit.page("queues.html", page=page, sort=sort, history=history, total=len(snapshot.queues))


def queue(visit: Visit) -> Response:
    """One queue and its messages."""
    name, after = visit.request.path_params["name"], visit.number("after")
    known = visit.site.monitor.find(name)
    with visit.site.pool.connection() as database:
        withhold = not visit.rights().may(Right.READ_BODIES, name)
        shown = reading.messages(database, name, after, withhold=withhold) if known.kind != "external" else None
        later = (
            reading.delayed_messages(database, name)
            if known.has_delayed and visit.rights().may(Right.READ_DELAYED, name)
            else None
        )
        in_flight = reading.in_flight(database, name)
        leased = reading.leased(database, name)
    history = visit.site.monitor.history(name)
    enqueued, dequeued = charts.rates(history)
    return visit.page(
        "queue.html",
        queue=queue_document(known, visit.site.settings),
        page=shown,
        after=after,
        may_purge=visit.may(Right.PURGE, name),
        may_control=visit.may(Right.CONTROL),
        delayed=later,
        in_flight=in_flight,
        leased=leased,
        may_reschedule=visit.may(Right.CHANGE_DELAYED, name),
        is_error=name == visit.site.settings.supervisor.error_queue,
        minutes=(history[-1].at - history[0].at) / 60 if history else 0,
        charts=[
            (charts.chart(values, 300, 72), text)
            for text, values in (
                ("Waiting", charts.depths(history)),
                ("Oldest, seconds", charts.ages(history)),
                (("In per second"), enqueued),
                ("Out per second", dequeued),
                ("Workers", charts.workers(history)),
            )
        ],
    )


def message(visit: Visit) -> Response:
    """One message with its headers and body."""
    name, row = visit.request.path_params["name"], visit.request.path_params["row"]
    with visit.site.pool.connection() as database:
        found = reading.one_message(database, name, row)
    return visit.page("message.html", message=found, back=name)


def purge(visit: Visit, status: int = 200, wrong: str | None = None) -> Response:
    """Ask before a purge; `wrong` says what was wrong with the answer."""
    name = visit.request.path_params["name"]
    shown = queue_document(visit.site.monitor.find(name), visit.site.settings)
    return visit.page("purge.html", status, queue=shown, may=visit.may(Right.PURGE, name), wrong=wrong)


def failed(visit: Visit) -> Response:
    """Failed messages by cause."""
    key, after = visit.argument("cause") or None, visit.number("after")
    wanted = failed_filter(visit)
    with visit.site.pool.connection() as database:
        page = reading.failed_page(database, visit.error_queue, wanted, key, after)
    return visit.page(
        "failed.html",
        page=page,
        key=key,
        after=after,
        wanted=wanted,
        since=visit.argument("since"),
        may=visit.may(Right.CHANGE_FAILED, page.queue),
    )


def read_failure(visit: Visit) -> FailedDetail:
    """Return the failed message that the address names. Raises MessageNotFound, QueueNotFound."""
    with visit.site.pool.connection() as database:
        return reading.failed_detail(database, visit.error_queue, visit.request.path_params["row"])


def failure_page(visit: Visit, template: str, found: FailedDetail, status: int = 200, **values: Any) -> Response:
    """Return a page about one failed message."""
    queue = visit.error_queue
    return visit.page(template, status, found=found, queue=queue, may=visit.may(Right.CHANGE_FAILED, queue), **values)


def failed_message(visit: Visit) -> Response:
    """One failed message."""
    return failure_page(visit, "failed_message.html", read_failure(visit))


def edit(visit: Visit) -> Response:
    """Return the form of an edit."""
    found = read_failure(visit)
    headers, body, to = found.message.headers or {}, editable_body(found.message), found.failure.failed_queue or ""
    return failure_page(visit, "edit.html", found, problem=None, headers=headers, body=body, to=to)


def discard(visit: Visit, status: int = 200, wrong: str = "") -> Response:
    """Ask before a message is discarded; `wrong` says what was wrong with the answer."""
    return failure_page(visit, "discard.html", read_failure(visit), status, wrong=wrong)


def subscriptions(visit: Visit) -> Response:
    """All subscriptions."""
    return visit.page("subscriptions.html", page=api.read_subscriptions(visit))


def schedules(visit: Visit) -> Response:
    """All schedules."""
    try:
        page = api.read_schedules(visit)
    except FeatureMissing:
        page = None
    return visit.page("schedules.html", page=page, may=visit.may(Right.CONTROL_SCHEDULE))


def sagas(visit: Visit) -> Response:
    """Return the types of sagas."""
    try:
        page = api.read_sagas(visit)
    except FeatureMissing:
        page = None
    return visit.page("sagas.html", page=page)


def saga(visit: Visit) -> Response:
    """Return the instances of a saga, or the one that is looked for."""
    name, wanted = visit.request.path_params["name"], visit.argument("instance")
    try:
        with visit.site.pool.connection() as database:
            if not wanted:
                found = saga_instances(database, name, as_id(visit.argument("after")))
                return visit.page("saga.html", page=found, withheld=False)
            page = saga_detail(database, name, wanted)
    except PermissionDenied:
        return visit.page("saga.html", page=SagaInstances(name, []), withheld=True)
    return visit.page("instance.html", saga=name, found=page.found, page=page)


def workers(visit: Visit) -> Response:
    """Return the supervisors of all hosts with their workers."""
    return visit.page("workers.html", page=api.read_supervisors(visit))


def follow(visit: Visit) -> Response:
    """Return what is known of one message, or of a conversation; without an id, only the form that asks for one."""
    wanted, named = visit.argument("id"), visit.argument("conversation")
    life = api.read_message_life(visit) if wanted and not named else None
    tree = None
    if named:
        with visit.site.pool.connection() as database:
            tree = reading.conversation_document(conversation(database, named, look_through=api.LOOK_THROUGH))
    return visit.page("follow.html", wanted=wanted, life=life, tree=tree, looked_through=api.LOOK_THROUGH)


def deployment(visit: Visit) -> Response:
    """Versions, and with `verify` the differences from the plan."""
    verified = api.read_verification(visit) if visit.argument("verify") else None
    return visit.page("deployment.html", found=api.read_deployment(visit), verified=verified)


ROUTES: tuple[tuple[str, Handler], ...] = (
    ("/", queues),
    ("/queue/{name:path}", queue),
    ("/message/{row:int}/{name:path}", message),
    ("/purge/{name:path}", purge),
    ("/failed", failed),
    ("/failed/{row:int}", failed_message),
    ("/failed/{row:int}/edit", edit),
    ("/failed/{row:int}/discard", discard),
    ("/follow", follow),
    ("/subscriptions", subscriptions),
    ("/schedules", schedules),
    ("/sagas", sagas),
    ("/saga/{name:path}", saga),
    ("/workers", workers),
    ("/deployment", deployment),
)
