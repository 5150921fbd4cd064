"""What the command line prints with --json, the JSON interface returns and the pages show: one structure for all.

Times are ISO 8601 in UTC, unless a header says otherwise.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypeVar

from msgspec import Struct

__all__ = [
    "BulkPreview", "ControlDocument", "ConversationDocument", "DelayedDocument", "DelayedMessageDocument",
    "DelayedPage", "DeploymentDocument", "Document", "FactDocument", "FailedDetail", "FailedGroup", "FailedPage",
    "FailedSummary", "FindingDocument", "MessageDocument", "MessageLifeDocument", "MessagePage", "OperationDocument",
    "OperationPage", "Problem", "QueueDocument", "QueueFinding", "QueuePage", "SagaDetail", "SagaInstance",
    "SagaInstances", "SagaTimeout", "SagaType", "SagaTypes", "ScheduleDocument", "ScheduleTimes", "Schedules",
    "StepDocument", "Subscription", "Subscriptions",
    "SupervisorDocument", "Supervisors", "Verification", "WorkerDocument", "document_of",
]  # fmt: skip


class Document(Struct, frozen=True):
    """The base of all documents."""


_D = TypeVar("_D", bound=Document)


def document_of(kind: type[_D], source: object, **more: Any) -> _D:
    """Return a document whose members are the attributes of `source` with the same names, or `more`.

    Times become texts of ISO 8601. One without a time zone is in UTC, as the database's times are.
    """
    taken = {name: _plain(getattr(source, name)) for name in kind.__struct_fields__ if name not in more}
    return kind(**taken, **more)


def _plain(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()


class ControlDocument(Document, frozen=True):
    """What operators have set for a queue.

    `shared`: the limit is for all supervisors together; null: the environments' limits apply.
    """

    paused: bool
    limit: int | None
    shared: bool
    reason: str | None
    changed_by: str
    changed_at: str
    text: str


class QueueDocument(Document, frozen=True):
    """A queue. Null: the server does not know it, or the login may not see it; operators have set nothing (`control`).

    `description`, `owner` and `runbook` are what the environment's file says about it; null if it says nothing.
    """

    queue: str
    kind: str
    waiting: int | None
    oldest_age_ms: int | None
    expired: int | None
    enqueued_per_second: float | None
    dequeued_per_second: float | None
    table_bytes: int | None
    index_bytes: int | None
    dead_rows: int | None
    has_delayed: bool
    leased: int | None = None
    problem: str | None = None
    control: ControlDocument | None = None
    description: str | None = None
    owner: str | None = None
    runbook: str | None = None


class QueueFinding(Document, frozen=True):
    """Something that is wrong with the table of a queue or a saga (`queue` is `saga NAME`), and what mends it."""

    queue: str
    finding: str
    detail: str
    remedy: str


class QueuePage(Document, frozen=True):
    """Queues by name; `after` is the name with which the next page begins, null if there is none."""

    measured_at: str
    queues: list[QueueDocument]
    after: str | None = None


class MessageDocument(Document, frozen=True):
    """A message. The body is text or Base64, and may be truncated: `body_bytes` is its whole length.

    `withheld` says why there is no body, if the login may not read it.
    """

    queue: str
    row_version: int
    id: str
    expired: bool
    expires: str | None
    body_bytes: int
    message_id: str | None = None
    headers: dict[str, str | None] | None = None
    raw_headers: str | None = None
    corrupt: str | None = None
    body: str | None = None
    body_base64: str | None = None
    withheld: str | None = None


class MessagePage(Document, frozen=True):
    """Messages of a queue, oldest first; `after` is the row version after which the next page begins, null if there is
    none.
    """

    queue: str
    messages: list[MessageDocument]
    after: int | None = None


class DelayedDocument(Document, frozen=True):
    """A message that is not due yet. `key` names it until it is due at another time."""

    key: str
    due: str
    message_id: str
    message_type: str
    body_bytes: int


class DelayedMessageDocument(DelayedDocument, frozen=True, kw_only=True):
    """A message that is not due yet, with its headers and body; the body in words if it is not text, or withheld."""

    queue: str
    headers: dict[str, str | None]
    body: str | None


class DelayedPage(Document, frozen=True):
    """The delayed messages of a queue that are due next; `more`: there are others."""

    queue: str
    messages: list[DelayedDocument]
    more: bool


class FailedSummary(Document, frozen=True):
    """A failed message, without its headers and body."""

    row_version: int
    id: str
    message_id: str
    failed_queue: str | None
    failed_at: str | None
    exception_type: str | None
    exception: str | None
    message_type: str | None
    body_bytes: int
    corrupt: str | None


class FailedGroup(Document, frozen=True):
    """Failed messages of one cause, which `cause` names; `exception` is the text of the first one."""

    cause: str
    count: int
    failed_queue: str | None
    exception_type: str | None
    message_type: str | None
    exception: str | None
    first_row: int
    first_failed_at: str | None
    last_failed_at: str | None


class FailedPage(Document, frozen=True):
    """What a bounded scan of the error queue found. `after`: where the next scan begins, null if all was read."""

    queue: str
    read: int
    matched: int
    groups: list[FailedGroup]
    messages: list[FailedSummary]
    after: int | None = None
    up_to: int | None = None


class FailedDetail(Document, frozen=True):
    """A failed message whole."""

    failure: FailedSummary
    stack_trace: str
    message: MessageDocument


class FactDocument(Document, frozen=True):
    """One thing that is known of a message.

    `related`: id of another message, of a delayed message or of a saga's instance.
    """

    kind: str
    place: str
    text: str
    at: str | None
    row_version: int | None
    related: str


class MessageLifeDocument(Document, frozen=True):
    """What is known of a message.

    `unfinished`: queues with older messages that were not looked through; `unseen`: what could not be read.
    """

    message_id: str
    message_type: str
    conversation_id: str
    facts: list[FactDocument]
    unfinished: list[str]
    unseen: list[str]


class StepDocument(Document, frozen=True):
    """A message of a conversation at one endpoint.

    `tree`: the lines of the tree before it; `state`: handled, failed, waiting or delayed.
    """

    tree: str
    message_id: str | None
    related_to: str | None
    message_type: str | None
    intent: str | None
    sending_endpoint: str | None
    endpoint: str | None
    time_sent: str | None
    state: str
    took_ms: float | None


class ConversationDocument(Document, frozen=True):
    """The messages of a conversation, each after the one whose handler sent it.

    `unfinished` and `unseen` as for a message.
    """

    conversation_id: str
    steps: list[StepDocument]
    unfinished: list[str]
    unseen: list[str]


class Subscription(Document, frozen=True):
    """A subscription of an endpoint to an event."""

    topic: str
    endpoint: str
    queue: str


class Subscriptions(Document, frozen=True):
    """Subscriptions by topic; `after` is the number of those before the next page, null if there is none."""

    subscriptions: list[Subscription]
    after: int | None = None


class ScheduleDocument(Document, frozen=True):
    """A schedule. `queue`: whose supervisors send its messages.

    `next_due` is null if no supervisor has seen the schedule yet, or nothing is due any more. `last_due` is the due
    time of the last message. `late_ms`: for how long the next one has been due. `reason`: why it was paused or resumed.
    """

    schedule: str
    queue: str
    destination: str
    message_type: str
    due: str
    missed: str
    paused: bool
    next_due: str | None
    last_due: str | None
    late_ms: int | None
    requested_at: str | None
    reason: str | None
    changed_by: str
    changed_at: str


class Schedules(Document, frozen=True):
    """Schedules by name."""

    schedules: list[ScheduleDocument]


class ScheduleTimes(Document, frozen=True):
    """A schedule and its next due times."""

    schedule: ScheduleDocument
    times: list[str]


class SagaType(Document, frozen=True):
    """A type of saga that has a table. `second`: the correlation property to which it changes."""

    saga: str
    correlation: str
    correlation_type: str
    second: str | None = None
    second_type: str | None = None


class SagaTypes(Document, frozen=True):
    """The types of sagas of the database."""

    sagas: list[SagaType]


class SagaInstance(Document, frozen=True):
    """An instance of a saga."""

    instance: Any
    id: str
    version: int
    state: Any
    metadata: Any


class SagaTimeout(Document, frozen=True):
    """A timeout that a saga's instance has requested and that is not due yet.

    `key` names it among the queue's delayed messages.
    """

    queue: str
    due: str
    message_type: str
    key: str


class SagaDetail(Document, frozen=True):
    """An instance of a saga with its timeouts, the next ones first.

    `unseen`: queues whose delayed messages the login may not read.
    """

    found: SagaInstance
    timeouts: list[SagaTimeout]
    unseen: list[str]


class SagaInstances(Document, frozen=True):
    """Instances in the order of their ids; `after` is the id after which the next page begins, null if there is
    none.
    """

    saga: str
    instances: list[SagaInstance]
    after: str | None = None


class WorkerDocument(Document, frozen=True):
    """A worker process at its supervisor's last report. `message`: id of the row that its handler had.

    `progress_percent` and `progress_text` are what the handler of a leased message has said now; null if nothing.
    """

    queue: str
    process_id: int
    state: str
    seconds: float
    message: str | None
    message_seconds: float | None
    progress_percent: int | None = None
    progress_text: str | None = None


class SupervisorDocument(Document, frozen=True):
    """A supervisor as it last reported itself.

    `gone`: it is silent for so long that it has died, or cannot reach the database. `unreadable`: its report has
    another form, so that neither queues nor workers are known. `too_long`: newer reports of its login have so many
    characters that this one is left out.
    """

    id: str
    host: str
    process_id: int
    environment: str
    version: str
    login: str
    started_at: str
    seen_at: str
    silent_seconds: float
    gone: bool
    queues: list[str]
    workers: list[WorkerDocument]
    unreadable: bool
    too_long: bool


class Supervisors(Document, frozen=True):
    """The supervisors of all hosts, by host."""

    supervisors: list[SupervisorDocument]


class DeploymentDocument(Document, frozen=True):
    """What is deployed, and which program answers."""

    environment: str
    target: str
    engine: str
    engine_version: str
    schema_version: int
    deployed_by: str
    deployed_at: str
    program: str
    program_schema: int
    read_only: bool
    features: list[str]


class FindingDocument(Document, frozen=True):
    """A difference between database and plan, or a remark."""

    kind: str
    subject: str
    detail: str
    remedy: str
    remark: bool


class Verification(Document, frozen=True):
    """What `rowpost verify` finds."""

    clean: bool
    findings: list[FindingDocument]
    notes: list[str]


class OperationDocument(Document, frozen=True):
    """An operation on record.

    `total` is null while messages are counted, and for an operation on one. `state`: running, done, cancelled, failed,
    interrupted.
    """

    number: int
    name: str
    state: str
    who: str
    client: str
    queue: str | None
    message_id: str | None
    details: dict[str, Any]
    reason: str | None
    outcome: str | None
    started_at: str
    changed_at: str
    ended_at: str | None
    total: int | None
    done: int
    gone: int
    refused: int
    cancelled_by: str | None
    may_go_on: bool


class OperationPage(Document, frozen=True):
    """Operations, the last one first; `before` is the number before which the next page begins, null if there is
    none.
    """

    operations: list[OperationDocument]
    before: int | None = None


class BulkPreview(Document, frozen=True):
    """To which messages an operation would apply.

    `more`: not all messages were read, so there may be more than `matched`.

    With `up_to`, an operation applies to no message that fails later than this was read; null: to all up to the end of
    the queue when it begins.
    """

    queue: str
    read: int
    matched: int
    more: bool
    groups: list[FailedGroup]
    examples: list[FailedSummary]
    up_to: int | None = None


class Problem(Document, frozen=True):
    """Why a request was not answered."""

    error: str
    kind: str
