"""Read from the database what the pages show. Every list is bounded, and the next page seeks to where the last one ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from uuid import UUID

from rowpost.dashboard import documents as made
from rowpost.dashboard.monitor import MeasuredQueue, QueueSnapshot
from rowpost.database.connection import Connection
from rowpost.database.sql_folder import schema_version
from rowpost.deploy.plan import plan
from rowpost.deploy.verify import verify
from rowpost.endpoint.hosting import with_sagas
from rowpost.errors import MessageNotFound, PermissionDenied, SagaInstanceMissing
from rowpost.sagas.instances import find_instance, find_saga_type, instance_document, instances
from rowpost.settings.descriptor import DESCRIBED
from rowpost.settings.environment import Settings
from rowpost.transport.controls import QueueControl
from rowpost.transport.delayed_messages import DelayedMessages
from rowpost.transport.error_queue import ErrorQueue, Filter
from rowpost.transport.failed_message import FailedMessage
from rowpost.transport.failure_groups import Scan, scan
from rowpost.transport.queue import Queue
from rowpost.transport.supervisors import SupervisorPresence, Worker, supervisors_of
from rowpost.version import __version__
from rowpost.wire.description import UNSAFE, message_document
from rowpost.wire.message import BrowsedMessage

__all__ = [
    "delayed", "editable_body", "failed_detail", "failed_groups", "failed_page", "failed_summary", "in_hand", "messages", "one_message", "queue_document", "queue_page", "read_deployment", "saga_instance", "saga_instances",
    "saga_types", "subscriptions", "supervisors", "verification",
]  # fmt: skip

QUEUES, MESSAGES, DELAYED, FAILED, ROWS, INSTANCES = 200, 50, 20, 50, 500, 50
#: failed messages that one request reads, without a search and with one
SCANNED, SEARCHED = 1_000, 2_000
PREVIEW_BYTES, BODY_BYTES = 160, 256 * 1024
#: instances that are read one after the other if the login may not look one up
LOOKED_THROUGH = 5_000


def queue_document(state: MeasuredQueue, settings: Settings) -> made.QueueDocument:
    """Return the document of one queue, with what the environment says about it."""
    metrics, declared = state.metrics, settings.queue(state.name)
    return made.QueueDocument(
        name=state.name,
        kind=state.kind,
        waiting=state.waiting,
        oldest_age_ms=metrics.oldest_age_ms if metrics else None,
        expired=metrics.expired if metrics else None,
        enqueued_per_second=state.enqueued_per_second,
        dequeued_per_second=state.dequeued_per_second,
        table_bytes=metrics.table_bytes if metrics else None,
        index_bytes=metrics.index_bytes if metrics else None,
        dead_rows=metrics.dead_rows if metrics else None,
        has_delayed=state.has_delayed,
        problem=state.problem,
        control=_control(state.control),
        **{key: getattr(declared, key, "") or None for key in DESCRIBED},
    )


def _control(control: QueueControl | None) -> made.ControlDocument | None:
    if control is None:
        return None
    at = control.changed_at.replace(tzinfo=UTC).isoformat()
    return made.ControlDocument(control.paused, control.limit, control.shared, control.reason, control.changed_by, at, control.text)


def supervisors(database: Connection) -> made.Supervisors:
    """Return the supervisors of all hosts with their workers. Raises PermissionDenied."""
    return made.Supervisors([_supervisor(each) for each in supervisors_of(database)])


def _supervisor(each: SupervisorPresence) -> made.SupervisorDocument:
    started, seen = (at.replace(tzinfo=UTC).isoformat() for at in (each.started_at, each.seen_at))
    return made.SupervisorDocument(
        id=str(each.supervisor_id), host=each.host, process_id=each.process_id, environment=each.environment, version=each.version, login=each.login,
        started_at=started, seen_at=seen, silent_seconds=each.silent, gone=each.gone, queues=list(each.queues),
        workers=[made.WorkerDocument(**asdict(worker)) for worker in each.workers], unreadable=each.unreadable, too_long=each.too_long,
    )  # fmt: skip


def queue_page(snapshot: QueueSnapshot, settings: Settings, part: str = "", after: str = "", sort: str = "name") -> made.QueuePage:
    """Return up to 200 queues whose names contain a text.

    Args:
        after: only names after this one, if they are sorted by name.
        sort: name, waiting or age; the latter two show the 200 highest.
    """
    found = [state for name, state in sorted(snapshot.queues.items()) if part.casefold() in name.casefold()]
    if sort == "waiting":
        found.sort(key=lambda state: -(state.waiting or 0))
    elif sort == "age":
        found.sort(key=lambda state: -((state.metrics and state.metrics.oldest_age_ms) or 0))
    else:
        found = [state for state in found if state.name > after]
    shown = found[:QUEUES]
    more = shown[-1].name if len(found) > QUEUES and sort == "name" else None
    at = datetime.fromtimestamp(snapshot.at, UTC).isoformat(timespec="milliseconds")
    return made.QueuePage(at, [queue_document(state, settings) for state in shown], more)


def messages(database: Connection, name: str, after: int | None = None, count: int = MESSAGES, body_bytes: int = PREVIEW_BYTES) -> made.MessagePage:
    """Return the messages of a queue after a row version, with the beginnings of their bodies. Raises QueueNotFound."""
    queue = Queue(name, database)
    found = queue.browse(count, after, body_bytes)
    shown = [_message(queue.name, message) for message in found]
    return made.MessagePage(queue.name, shown, found[-1].row_version if len(found) == count else None)


def delayed(database: Connection, name: str, count: int = DELAYED) -> made.DelayedPage:
    """Return the delayed messages of a queue that are due next. Raises QueueNotFound, PermissionDenied."""
    found = DelayedMessages(name, database).browse(count + 1, max_body_bytes=0)
    shown = [made.DelayedDocument(each.key, each.due.isoformat(), each.message_id, each.message_type, each.body_bytes) for each in found[:count]]
    return made.DelayedPage(name, shown, len(found) > count)


def in_hand(database: Connection, name: str) -> list[tuple[SupervisorPresence, Worker]]:
    """Return the workers that had a message of a queue at their supervisors' last reports, and those supervisors. Empty if the login may not see them."""
    try:
        found = supervisors_of(database)
    except PermissionDenied:
        return []
    return [(each, worker) for each in found if not each.gone for worker in each.workers if worker.queue == name and worker.message]


def one_message(database: Connection, name: str, row: int) -> made.MessageDocument:
    """Return one message with up to 256 KiB of its body. Raises QueueNotFound, MessageNotFound."""
    queue = Queue(name, database)
    for each in queue.browse(1, row - 1, BODY_BYTES):
        if each.row_version == row:
            return _message(queue.name, each)
    raise MessageNotFound(f"Message {row} is not in {name!r} any more: it was received or deleted, or a receiver has locked it.")


def _message(queue: str, message: BrowsedMessage) -> made.MessageDocument:
    return made.MessageDocument(**message_document(queue, message))


def failed_page(
    database: Connection, queue: str, wanted: Filter, key: str | None = None, after: int | None = None, count: int = FAILED
) -> made.FailedPage:
    """Return failed messages and their groups, from up to 1,000 messages, or 2,000 if something is searched."""
    searching = key is not None or wanted != Filter()
    errors = ErrorQueue(database, queue)
    found = scan(errors, wanted, key=key, after=after, show=count, read_at_most=SEARCHED if searching else SCANNED)
    next_row = found.up_to if found.more else None
    if found.matched > len(found.messages):  # the list goes on below the last one that is shown
        next_row = found.messages[-1].row_version
    shown = [failed_summary(message) for message in found.messages]
    return made.FailedPage(errors.queue.name, found.read, found.matched, failed_groups(found), shown, next_row, found.up_to)


def failed_groups(found: Scan) -> list[made.FailedGroup]:
    """Return the documents of the groups that a scan found: up to 500."""
    return [
        made.FailedGroup(
            each.cause.key, each.count, each.cause.failed_in, each.cause.exception_type, each.cause.message_type, each.example,
            each.first_row, each.first_failed_at, each.last_failed_at,
        )
        for each in found.groups[:ROWS]
    ]  # fmt: skip


def failed_detail(database: Connection, queue: str, row: int) -> made.FailedDetail:
    """Return one failed message. Raises MessageNotFound, QueueNotFound."""
    errors = ErrorQueue(database, queue)
    found = errors.find(row)
    return made.FailedDetail(failed_summary(found), found.stack_trace, _message(errors.queue.name, found.browsed))


def editable_body(message: made.MessageDocument) -> str | None:
    """Return the body if a browser's form gives it back as it is; None for binary data, control characters and mixed ends of lines."""
    body = message.body
    if body is None or body.count("\r\n") not in (0, body.count("\n")) or UNSAFE.search(body.replace("\r\n", "\n")):
        return None
    return body


def failed_summary(message: FailedMessage) -> made.FailedSummary:
    """Return the document of a failed message, without its headers and body."""
    return made.FailedSummary(
        row_version=message.row_version,
        id=str(message.id),
        message_id=message.message_id,
        failed_queue=message.failed_in,
        failed_at=message.failed_at_iso,
        exception_type=message.exception_type or None,
        exception=message.exception_message or None,
        message_type=message.message_type or None,
        body_bytes=message.browsed.body_bytes,
        corrupt=message.corrupt,
    )


def subscriptions(database: Connection, part: str = "", after: int = 0) -> made.Subscriptions:
    """Return up to 500 subscriptions whose topic, endpoint or queue contains a text, by topic."""
    wanted = part.casefold()
    rows: Sequence[Any] = sorted(tuple(row) for row in database.call("list_subscriptions"))
    found = [row for row in rows if any(wanted in text.casefold() for text in row)]
    shown = [made.Subscription(*row) for row in found[after : after + ROWS]]
    return made.Subscriptions(shown, after + ROWS if len(found) > after + ROWS else None)


def saga_types(database: Connection) -> made.SagaTypes:
    """Return the types of sagas. Raises FeatureMissing."""
    rows = database.call("list_saga_types")
    return made.SagaTypes([made.SagaType(row.saga_name, row.correlation_name, row.correlation_type, row.transitional_name) for row in rows])


def saga_instances(database: Connection, saga: str, after: UUID | None = None, count: int = INSTANCES) -> made.SagaInstances:
    """Return a page of instances. Raises SagaNotDeployed."""
    kind = find_saga_type(database, saga)
    rows = database.call("list_sagas", kind.saga_name, count=count, after_id=after)
    found = [made.SagaInstance(**instance_document(row.id, row.concurrency, row.data, row.metadata, kind.correlation_name)) for row in rows]
    return made.SagaInstances(kind.saga_name, found, found[-1].id if len(found) == count else None)


def saga_instance(database: Connection, saga: str, instance: str) -> made.SagaInstance:
    """Return an instance by its correlation value or id. Raises SagaNotDeployed, SagaInstanceMissing.

    A login that may only list instances finds it among the first 5,000.
    """
    kind = find_saga_type(database, saga)
    try:
        found = find_instance(database, kind.saga_name, kind.correlation_name, instance)
    except PermissionDenied:
        found = _look_through(database, kind, instance)
    if found is None:
        raise SagaInstanceMissing(f"The saga {saga} has no instance {instance!r}. It is completed, or it was never started.")
    return made.SagaInstance(**found)


def _look_through(database: Connection, kind: Any, instance: str) -> dict[str, Any] | None:
    for key, value, version, _, data, metadata in islice(instances(database, kind.saga_name), LOOKED_THROUGH):
        if instance in (str(key), value):
            return instance_document(key, version, data, metadata, kind.correlation_name)
    return None


def read_deployment(database: Connection, settings: Settings, *, read_only: bool) -> made.Deployment:
    """Return what is deployed."""
    (row,) = database.call("get_version")
    features = sorted({each.feature for each in database.call("list_features") if each.environment == settings.declarant})
    return made.Deployment(
        environment=settings.environment,
        target=settings.target,
        engine=settings.engine,
        engine_version=row.engine_version,
        schema_version=row.schema_version,
        deployed_by=row.tool_version,
        deployed_at=row.applied_at.isoformat(timespec="seconds"),
        program=__version__,
        program_schema=schema_version(settings.engine),
        read_only=read_only,
        features=features,
    )


def verification(database: Connection, settings: Settings) -> made.Verification:
    """Compare the database with the plan of the environment, as `rowpost verify` does."""
    notes: list[str] = []
    planned = plan(with_sagas(settings, lambda error: notes.append(str(error))))
    found = verify(database, planned)
    rows = [made.FindingDocument(each.kind, each.subject, each.detail, each.remedy, each.remark) for each in found]
    return made.Verification(all(each.remark for each in found), rows, notes)
