"""Read from the database what operators ask for, as documents.

Every list is bounded, and the next page seeks to where the last one ended.

    page = failed_page(database, "error", Filter(exception="timeout"))
    for each in page.groups:
        print(each.cause, each.count)

`rowpost … --json`, the JSON interface and the pages of the dashboard show these documents.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from rowpost.database.connection import Connection
from rowpost.database.sql_folder import schema_version
from rowpost.deploy.plan import plan
from rowpost.deploy.sagas import saga_findings
from rowpost.deploy.verify import verify
from rowpost.endpoint.hosting import with_sagas
from rowpost.endpoint.schedules import with_schedules
from rowpost.errors import MessageNotFound, PermissionDenied
from rowpost.operations import documents as made
from rowpost.operations.log import LoggedOperation, list_operations
from rowpost.operations.message_life import Conversation, MessageLife
from rowpost.settings.environment import Settings
from rowpost.transport.controls import QueueControl
from rowpost.transport.delayed_messages import DelayedMessages
from rowpost.transport.error_queue import ErrorQueue, Filter
from rowpost.transport.failed_message import FailedMessage
from rowpost.transport.failure_groups import Group, Scan, scan
from rowpost.transport.leases import LeasedMessage, progress_of_rows
from rowpost.transport.queue import Queue
from rowpost.transport.supervisors import ReportedWorker, SupervisorPresence, supervisors_of
from rowpost.version import __version__
from rowpost.wire.conversation import ConversationStep, walk
from rowpost.wire.description import message_document
from rowpost.wire.message import BrowsedMessage

__all__ = [
    "check_queues", "control_document", "conversation_document", "decisions", "delayed_messages",
    "deployment", "failed_detail", "failed_group", "failed_groups", "failed_page", "failed_summary", "handled_queues",
    "in_flight", "leased", "life_document", "messages", "one_message", "operation_document", "operation_page",
    "outbox_figures", "preview_document", "supervisors", "verification",
]  # fmt: skip

MESSAGES, DELAYED, FAILED, ROWS, OPERATIONS, MOST_OPERATIONS = 50, 20, 50, 500, 50, 1_000
#: failed messages that one request reads, without a search and with one
SCANNED, SEARCHED = 1_000, 2_000
PREVIEW_BYTES, BODY_BYTES = 160, 256 * 1024


# ---------------------------------------------------------------------------------------------- queues and messages
def check_queues(database: Connection, queue: str | None = None) -> list[made.QueueFinding]:
    """Return what is wrong with the tables and indexes of a queue, or of all and of the sagas. Raises QueueNotFound."""
    found = [made.QueueFinding(*row) for row in database.call("check_queue", queue_name=queue)]
    sagas = saga_findings(database) if queue is None else []
    return found + [made.QueueFinding(f"saga {name}", *rest) for name, *rest in sagas]


def control_document(control: QueueControl | None) -> made.ControlDocument | None:
    """Return what operators have set for a queue; None if they have set nothing."""
    return None if control is None else made.document_of(made.ControlDocument, control)


def messages(
    database: Connection,
    name: str,
    after: int | None = None,
    count: int = MESSAGES,
    body_bytes: int = PREVIEW_BYTES,
    *,
    withhold: bool = False,
) -> made.MessagePage:
    """Return the messages of a queue after a row version, with the beginnings of their bodies. Raises QueueNotFound.

    `withhold` as for `Queue.show`.
    """
    queue = Queue(name, database)
    found = queue.show(count, after, body_bytes, withhold=withhold)
    shown = [_message(queue.name, message) for message in found]
    return made.MessagePage(queue.name, shown, found[-1].row_version if len(found) == count else None)


def one_message(database: Connection, name: str, row: int) -> made.MessageDocument:
    """Return one message with up to 256 KiB of its body. Raises QueueNotFound, MessageNotFound."""
    queue = Queue(name, database)
    for each in queue.show(1, row - 1, BODY_BYTES):
        if each.row_version == row:
            return _message(queue.name, each)
    raise MessageNotFound(
        f"Message {row} is not in {name!r} any more: it was received or deleted, or a receiver has locked it."
    )


def _message(queue: str, message: BrowsedMessage) -> made.MessageDocument:
    return made.MessageDocument(**message_document(queue, message))


def delayed_messages(database: Connection, name: str, count: int = DELAYED) -> made.DelayedPage:
    """Return the delayed messages of a queue that are due next. Raises QueueNotFound, PermissionDenied."""
    found = DelayedMessages(name, database).browse(count + 1, max_body_bytes=0)
    shown = [made.document_of(made.DelayedDocument, each) for each in found[:count]]
    return made.DelayedPage(name, shown, len(found) > count)


def in_flight(database: Connection, name: str) -> list[tuple[SupervisorPresence, ReportedWorker]]:
    """Return the workers that had a message of a queue at their supervisors' last reports, and those supervisors.

    Empty if the login may not see them.
    """
    try:
        found = supervisors_of(database)
    except PermissionDenied:
        return []
    return [
        (each, worker)
        for each in found
        if not each.gone
        for worker in each.workers
        if worker.queue == name and worker.message
    ]


def supervisors(database: Connection) -> made.Supervisors:
    """Return the supervisors of all hosts with their workers. Raises PermissionDenied."""
    found = supervisors_of(database)
    leased = progress_of_rows(database, handled_queues(found))
    return made.Supervisors([_supervisor(each, leased) for each in found])


def handled_queues(found: Iterable[SupervisorPresence]) -> set[str]:
    """Return the queues of which workers handle a message."""
    return {worker.queue for each in found for worker in each.workers if worker.message}


def _supervisor(each: SupervisorPresence, leased: dict[str, LeasedMessage]) -> made.SupervisorDocument:
    workers = [_worker(worker, leased.get(worker.message or "")) for worker in each.workers]
    return made.document_of(
        made.SupervisorDocument,
        each,
        id=str(each.supervisor_id),
        silent_seconds=each.silent,
        queues=list(each.queues),
        workers=workers,
    )


def _worker(worker: ReportedWorker, leased: LeasedMessage | None) -> made.WorkerDocument:
    if leased is None:
        return made.document_of(made.WorkerDocument, worker, progress_percent=None, progress_text=None)
    return made.document_of(
        made.WorkerDocument,
        worker,
        progress_percent=leased.progress_percent,
        progress_text=leased.progress_text or None,
    )


def leased(database: Connection, name: str) -> list[LeasedMessage]:
    """Return the leased messages of a queue; none if it has no table of leases, or the login may not see them."""
    return list(progress_of_rows(database, [name]).values())


# ---------------------------------------------------------------------------------------------- failed messages
def failed_page(
    database: Connection,
    queue: str,
    wanted: Filter,
    cause: str | None = None,
    after: int | None = None,
    count: int = FAILED,
) -> made.FailedPage:
    """Return failed messages and their groups, from up to 1,000 messages, or 2,000 if something is searched."""
    searching = cause is not None or wanted != Filter()
    errors = ErrorQueue(database, queue)
    found = scan(errors, wanted, key=cause, after=after, show=count, read_at_most=SEARCHED if searching else SCANNED)
    next_row = found.up_to if found.more else None
    if found.matched > len(found.messages):  # the list goes on below the last one that is shown
        next_row = found.messages[-1].row_version
    shown = [failed_summary(message) for message in found.messages]
    return made.FailedPage(
        errors.queue.name, found.read, found.matched, failed_groups(found), shown, next_row, found.up_to
    )


def failed_groups(found: Scan) -> list[made.FailedGroup]:
    """Return the documents of the groups that a scan found: up to 500."""
    return [failed_group(each) for each in found.groups[:ROWS]]


def failed_group(group: Group) -> made.FailedGroup:
    """Return the document of the messages of one cause."""
    cause = group.cause
    return made.document_of(
        made.FailedGroup,
        group,
        cause=cause.key,
        failed_queue=cause.failed_in or None,
        exception_type=cause.exception_type or None,
        message_type=cause.message_type or None,
        exception=group.example or None,
    )


def failed_detail(database: Connection, queue: str, row: int) -> made.FailedDetail:
    """Return one failed message. Raises MessageNotFound, QueueNotFound."""
    errors = ErrorQueue(database, queue)
    found = errors.find(row)
    return made.FailedDetail(failed_summary(found), found.stack_trace, _message(errors.queue.name, found.browsed))


def failed_summary(message: FailedMessage) -> made.FailedSummary:
    """Return the document of a failed message, without its headers and body."""
    return made.document_of(
        made.FailedSummary,
        message,
        id=str(message.id),
        failed_queue=message.failed_in,
        failed_at=message.failed_at_iso,
        exception_type=message.exception_type or None,
        exception=message.exception_message or None,
        message_type=message.message_type or None,
        body_bytes=message.browsed.body_bytes,
    )


def preview_document(queue: str, found: Scan) -> made.BulkPreview:
    """Return the document of a preview."""
    examples = [failed_summary(message) for message in found.messages]
    return made.BulkPreview(
        queue,
        found.read,
        found.matched,
        found.more,
        failed_groups(found),
        examples,
        None if found.more else found.up_to,
    )


# ---------------------------------------------------------------------------------------------- the operation log
def operation_page(database: Connection, count: int = OPERATIONS, before: int | None = None) -> made.OperationPage:
    """Return operations, the last one first. Raises PermissionDenied."""
    found = list_operations(database, min(count + 1, MOST_OPERATIONS), before)
    shown = [operation_document(operation) for operation in found[:count]]
    return made.OperationPage(shown, shown[-1].number if len(found) > count else None)


def operation_document(operation: LoggedOperation) -> made.OperationDocument:
    """Return the document of an operation. The digest of an edit's values is left out."""
    details = {name: value for name, value in operation.details.items() if name != "digest"}
    return made.document_of(made.OperationDocument, operation, details=details)


# ---------------------------------------------------------------------------------------- one message, one conversation
def life_document(life: MessageLife) -> made.MessageLifeDocument:
    """Return the document of what is known of a message."""
    facts = [made.document_of(made.FactDocument, fact) for fact in life.facts]
    return made.document_of(
        made.MessageLifeDocument, life, facts=facts, unfinished=list(life.unfinished), unseen=list(life.unseen)
    )


def conversation_document(found: Conversation) -> made.ConversationDocument:
    """Return the document of a conversation, whose messages form a tree."""
    steps = [_step(prefix, step) for prefix, step in walk(found.steps)]
    return made.ConversationDocument(found.conversation_id, steps, list(found.unfinished), list(found.unseen))


def _step(prefix: str, step: ConversationStep) -> made.StepDocument:
    return made.document_of(
        made.StepDocument, step, tree=prefix, state="failed" if step.failed else step.state or "handled"
    )


# -------------------------------------------------------------------------------------------- transactions and outboxes
def decisions(database: Connection) -> list[str]:
    """Return the ids of the transactions over several databases whose commit is decided and recorded."""
    return [row.transaction_id for row in database.call("list_decisions")]


def outbox_figures(business: Connection, endpoints: Iterable[str]) -> dict[str, Any]:
    """Return the columns of outbox_status of a business database; messages of other endpoints are counted apart."""
    return dict(business.call("outbox_status", endpoints=sorted(endpoints))[0]._asdict())


# ---------------------------------------------------------------------------------------------- deployment
def deployment(database: Connection, settings: Settings, *, read_only: bool) -> made.DeploymentDocument:
    """Return what is deployed, and which program answers. `read_only`: whether it refuses operations."""
    (row,) = database.call("get_version")
    features = sorted(
        {each.feature for each in database.call("list_features") if each.environment == settings.declarant}
    )
    return made.document_of(
        made.DeploymentDocument,
        settings,
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
    planned = plan(with_schedules(with_sagas(settings, lambda error: notes.append(str(error)))))
    if notes:
        planned = replace(planned, uncertain=(("schedules", "a handler of the environment"),))
    found = verify(database, planned)
    return made.Verification(
        all(each.remark for each in found), [made.FindingDocument(**asdict(each)) for each in found], notes
    )
