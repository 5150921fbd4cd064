"""The JSON behind the pages, and the OpenAPI document that describes it.

Version 1 reads, begins, resumes and cancels bulk operations, and pauses, resumes and runs schedules.

A decorated function answers one path, and some pages show the same document. The type of its result and its parameters
are what the document says of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import cleandoc
from typing import Any, get_type_hints

import msgspec
from starlette.responses import Response

from rowpost.dashboard import bulk
from rowpost.dashboard.queue_documents import queue_document, queue_page
from rowpost.dashboard.visit import Handler, Visit
from rowpost.database.connection import Connection
from rowpost.errors import InvalidCount
from rowpost.operations import documents as made
from rowpost.operations import reading
from rowpost.operations.bulk import CancelRequested
from rowpost.operations.message_life import conversation, message_life
from rowpost.operations.sagas import saga_detail, saga_instances, saga_types
from rowpost.operations.schedules import SCHEDULE_OPERATIONS, ScheduleChanged, next_times, schedules
from rowpost.operations.subscriptions import subscriptions_page
from rowpost.sagas.instances import as_id
from rowpost.version import __version__

__all__ = [
    "LOOK_THROUGH", "PATHS", "POSTS", "ROUTES", "openapi", "read_deployment", "read_message_life", "read_operations",
    "read_sagas", "read_schedules", "read_subscriptions", "read_supervisors", "read_verification",
]  # fmt: skip

ROOT = "/api/v1"
LIST = 1_000
BODY_BYTES = 64 * 1024
#: the newest messages of each queue that a page looks through for a message or a conversation
LOOK_THROUGH = 5_000


@dataclass(frozen=True)
class ApiParameter:
    """A parameter of a path: in the address, or a member of the object that is posted."""

    name: str
    description: str
    kind: type[str] | type[int] = str
    required: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of its value."""
        return {"type": "integer", "minimum": 0} if self.kind is int else {"type": "string"}


@dataclass(frozen=True)
class ApiPath:
    """One path: what answers it, the type of its document, and its parameters."""

    path: str
    method: str
    answer: Callable[[Visit], made.Document]
    parameters: tuple[ApiParameter, ...]

    @property
    def summary(self) -> str:
        """What it does: the docstring of its function."""
        return (self.answer.__doc__ or "").removesuffix(".")

    @property
    def document(self) -> type[made.Document]:
        """The type of its answer."""
        found: type[made.Document] = get_type_hints(self.answer)["return"]
        return found


_Answer = Callable[[Visit], made.Document]
_Reading = Callable[[Visit, Connection], made.Document]
PATHS: list[ApiPath] = []


def _path(method: str, path: str, *parameters: ApiParameter) -> Callable[[_Answer], _Answer]:
    """Declare what answers a path. Its docstring is the summary in the document."""

    def declare(answer: _Answer) -> _Answer:
        PATHS.append(ApiPath(f"{ROOT}{path}", method, answer, parameters))
        return answer

    return declare


def _reads(path: str, *parameters: ApiParameter) -> Callable[[_Reading], _Answer]:
    """Declare a GET whose function gets a connection too."""

    def declare(read: _Reading) -> _Answer:
        @wraps(read)
        def answer(visit: Visit) -> made.Document:
            with visit.site.pool.connection() as database:
                return read(visit, database)

        return _path("get", path, *parameters)(answer)

    return declare


def _required(visit: Visit, name: str) -> str:
    value = visit.argument(name)
    if not value:
        raise InvalidCount(f"The parameter {name} is missing.")
    return value


def _number(visit: Visit, name: str = "number") -> int:
    number = visit.number(name)
    if number is None:
        raise InvalidCount(f"The parameter {name} is missing.")
    return number


def _count(visit: Visit, default: int, most: int = LIST) -> int:
    count = visit.number("count")
    if count is not None and not 1 <= count <= most:
        raise InvalidCount(f"count must be between 1 and {most} (got {count}).")
    return count or default


QUEUE = ApiParameter("queue", "the queue's name", required=True)
ROW = ApiParameter("row", "the row version of the message", int, required=True)
ERROR_QUEUE = ApiParameter("queue", "the error queue; by default the environment's")
SEARCH = ApiParameter("search", "only names that contain this text")
AFTER_ROW = ApiParameter("after", "only messages after this row version", int)
COUNT_50 = ApiParameter("count", "1 to 1000, by default 50", int)
SAGA = ApiParameter("saga", "the saga's table", required=True)
SCHEDULE = ApiParameter("schedule", "the schedule's name", required=True)
WHY = ApiParameter("reason", "why, for those who read it")
NUMBER = ApiParameter("number", "the operation's number", int, required=True)
FILTER = (
    ApiParameter("failed_queue", "only messages that failed in this queue"),
    ApiParameter("exception", "only messages whose exception type or text contains this"),
    ApiParameter("type", "only messages whose type contains this"),
    ApiParameter("since", "only messages that failed then or later: 2h ago, or a time of ISO 8601"),
    ApiParameter("cause", "only messages of the group that this names"),
)
SELECTION = (ERROR_QUEUE, *FILTER, AFTER_ROW, ApiParameter("up_to", "only messages up to this row version", int))
HEADER = (
    ApiParameter("header", "for edit: the header that is set or removed"),
    ApiParameter("value", "its new value, which is not on record"),
)


@_path("get", "/queues", SEARCH, ApiParameter("after", "only names after this one"))
def _queues(visit: Visit) -> made.QueuePage:
    """List queues with their figures, by name, 200 a page."""
    return queue_page(
        visit.site.monitor.latest(), visit.site.settings, visit.argument("search"), visit.argument("after")
    )


@_path("get", "/queue", QUEUE)
def _queue(visit: Visit) -> made.QueueDocument:
    """Read the figures of one queue."""
    return queue_document(visit.site.monitor.find(_required(visit, "queue")), visit.site.settings)


@_reads("/messages", QUEUE, AFTER_ROW, ApiParameter("count", "1 to 200, by default 50", int))
def _messages(visit: Visit, database: Connection) -> made.MessagePage:
    """Browse the messages of a queue, oldest first."""
    return reading.messages(
        database, _required(visit, "queue"), visit.number("after"), _count(visit, 50, 200), BODY_BYTES
    )


@_reads("/message", QUEUE, ROW)
def _message(visit: Visit, database: Connection) -> made.MessageDocument:
    """Read one message."""
    return reading.one_message(database, _required(visit, "queue"), _number(visit, "row"))


@_reads("/delayed", QUEUE, ApiParameter("count", "1 to 200, by default 20", int))
def _delayed(visit: Visit, database: Connection) -> made.DelayedPage:
    """List the delayed messages of a queue that are due next."""
    return reading.delayed_messages(database, _required(visit, "queue"), _count(visit, reading.DELAYED))


@_reads("/failed", ERROR_QUEUE, *FILTER, AFTER_ROW, COUNT_50)
def _failed(visit: Visit, database: Connection) -> made.FailedPage:
    """Search failed messages, and group them by cause."""
    cause, after = visit.argument("cause") or None, visit.number("after")
    return reading.failed_page(database, visit.error_queue, bulk.failed_filter(visit), cause, after, _count(visit, 50))


@_reads("/failed-message", ERROR_QUEUE, ROW)
def _failed_message(visit: Visit, database: Connection) -> made.FailedDetail:
    """Read one failed message."""
    return reading.failed_detail(database, visit.error_queue, _number(visit, "row"))


@_reads("/message-life", ApiParameter("id", "the id of the message, or of its row", required=True))
def read_message_life(visit: Visit, database: Connection) -> made.MessageLifeDocument:
    """Put together what all tables know of one message."""
    return reading.life_document(
        message_life(database, visit.site.settings, _required(visit, "id"), look_through=LOOK_THROUGH)
    )


@_reads("/conversation", ApiParameter("id", "the id of the conversation", required=True))
def _conversation(visit: Visit, database: Connection) -> made.ConversationDocument:
    """List the messages of a conversation as a tree."""
    return reading.conversation_document(conversation(database, _required(visit, "id"), look_through=LOOK_THROUGH))


@_reads("/subscriptions", SEARCH, ApiParameter("after", "how many to leave out", int))
def read_subscriptions(visit: Visit, database: Connection) -> made.Subscriptions:
    """List subscriptions, 500 a page."""
    return subscriptions_page(database, visit.argument("search"), visit.number("after") or 0)


@_reads("/schedules")
def read_schedules(visit: Visit, database: Connection) -> made.Schedules:
    """List the schedules, by name."""
    return schedules(database)


@_reads("/schedule", SCHEDULE, ApiParameter("count", "1 to 1000, by default 10", int))
def _schedule(visit: Visit, database: Connection) -> made.ScheduleTimes:
    """Read one schedule, and its next due times."""
    return next_times(database, _required(visit, "schedule"), _count(visit, 10))


@_reads("/sagas")
def read_sagas(visit: Visit, database: Connection) -> made.SagaTypes:
    """List the types of sagas."""
    return saga_types(database)


@_reads("/saga-instances", SAGA, ApiParameter("after", "only instances after this id"), COUNT_50)
def _instances(visit: Visit, database: Connection) -> made.SagaInstances:
    """List the instances of a saga."""
    return saga_instances(database, _required(visit, "saga"), as_id(visit.argument("after")), _count(visit, 50))


@_reads(
    "/saga-instance", SAGA,
    ApiParameter("instance", "the correlation value or the id", required=True),
)  # fmt: skip
def _instance(visit: Visit, database: Connection) -> made.SagaDetail:
    """Find an instance of a saga, with its timeouts."""
    saga, instance = _required(visit, "saga"), _required(visit, "instance")
    return saga_detail(database, saga, instance)


@_reads("/supervisors")
def read_supervisors(visit: Visit, database: Connection) -> made.Supervisors:
    """List the supervisors of all hosts with their workers."""
    return reading.supervisors(database)


@_path("get", "/preview", *SELECTION)
def _preview(visit: Visit) -> made.BulkPreview:
    """Count the failed messages to which an operation would apply, and show examples."""
    return bulk.read_preview(visit)


@_reads(
    "/operations",
    ApiParameter("before", "only operations with a lower number", int), COUNT_50,
)  # fmt: skip
def read_operations(visit: Visit, database: Connection) -> made.OperationPage:
    """List what operators did, the last operation first."""
    return reading.operation_page(database, _count(visit, reading.OPERATIONS), visit.number("before"))


@_path("get", "/operation", NUMBER)
def _operation(visit: Visit) -> made.OperationDocument:
    """Read one operation, and how far it is."""
    return bulk.read_operation(visit, _number(visit))


@_path(
    "post", "/operations/begin",
    ApiParameter("operation", "retry, discard, move or edit", required=True), *SELECTION,
    ApiParameter("to", "the queue to which they go"), *HEADER,
    ApiParameter("remove", "1: remove the header"), ApiParameter("reason", "why; needed to discard"),
)  # fmt: skip
def _begin(visit: Visit) -> made.OperationDocument:
    """Begin a bulk operation on failed messages, in the background."""
    return bulk.read_operation(visit, bulk.start(visit))


@_path("post", "/operations/cancel", NUMBER)
def _cancel(visit: Visit) -> CancelRequested:
    """Ask an operation to stop."""
    return bulk.cancel(visit, _number(visit))


@_path("post", "/operations/resume", NUMBER, *HEADER)
def _resume(visit: Visit) -> made.OperationDocument:
    """Go on with an operation that was interrupted, cancelled or failed."""
    return bulk.read_operation(visit, bulk.resume_one(visit, _number(visit)))


@_path("post", "/schedules/pause", SCHEDULE, WHY)
def _pause_schedule(visit: Visit) -> ScheduleChanged:
    """Let no supervisor send the messages of a schedule."""
    return _on_schedule(visit, "pause")


@_path("post", "/schedules/resume", SCHEDULE, WHY)
def _resume_schedule(visit: Visit) -> ScheduleChanged:
    """End the pause of a schedule, which goes on with its next due time."""
    return _on_schedule(visit, "resume")


@_path("post", "/schedules/run", SCHEDULE, WHY)
def _run_schedule(visit: Visit) -> ScheduleChanged:
    """Let a supervisor send one message of a schedule now."""
    return _on_schedule(visit, "run")


def _on_schedule(visit: Visit, operation: str) -> ScheduleChanged:
    reason = visit.argument("reason") or None
    return visit.execute(SCHEDULE_OPERATIONS[operation](schedule=_required(visit, "schedule"), reason=reason))


@_reads("/deployment")
def read_deployment(visit: Visit, database: Connection) -> made.DeploymentDocument:
    """Read what is deployed."""
    return reading.deployment(database, visit.site.settings, read_only=visit.site.read_only)


@_reads("/verification")
def read_verification(visit: Visit, database: Connection) -> made.Verification:
    """Compare the database with the plan."""
    return reading.verification(database, visit.site.settings)


def openapi(base: str = "") -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the interface, made from its paths and their types.

    `base`: the path below which it is served.
    """
    types = [*{each.document: None for each in PATHS}, made.Problem]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    for component in components.values():
        if "description" in component:  # a docstring, whose lines are wrapped and indented for the source
            component["description"] = re.sub(r"(?<!\n)\n(?!\n)", " ", cleandoc(component["description"]))
    problem = {"description": "Why there is no answer", **_content(schemas[-1])}
    paths = {
        each.path: {
            each.method: {
                "operationId": each.path.removeprefix(f"{ROOT}/").replace("/", "_").replace("-", "_"),
                "summary": each.summary,
                **_given(each),
                "responses": {
                    "200": {"description": "OK", **_content(schemas[types.index(each.document)])},
                    "default": problem,
                },
            }
        }
        for each in PATHS
    }
    information = {
        "title": "rowpost dashboard",
        "version": "1",
        "description": f"Made from rowpost {__version__}. GET only reads.",
    }
    servers = {"servers": [{"url": base}]} if base else {}
    return {"openapi": "3.1.0", "info": information, **servers, "paths": paths, "components": {"schemas": components}}


def _given(path: ApiPath) -> dict[str, Any]:
    """Return the parameters of a path: of its address, or of the object that is posted."""
    if path.method == "get":
        return {
            "parameters": [
                {
                    "name": each.name,
                    "in": "query",
                    "required": each.required,
                    "description": each.description,
                    "schema": each.schema,
                }
                for each in path.parameters
            ]
        }
    members = {each.name: {**each.schema, "description": each.description} for each in path.parameters}
    schema = {
        "type": "object",
        "properties": members,
        "required": [each.name for each in path.parameters if each.required],
    }
    return {"requestBody": {"required": True, **_content(schema)}}


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def _as_json(answer: Callable[[Visit], Any]) -> Handler:
    return lambda visit: Response(msgspec.json.encode(answer(visit)), media_type="application/json")


def _handlers(method: str) -> tuple[tuple[str, Handler], ...]:
    return tuple((each.path, _as_json(each.answer)) for each in PATHS if each.method == method)


ROUTES = (*_handlers("get"), (f"{ROOT}/openapi.json", _as_json(lambda visit: openapi(visit.base))))
POSTS = _handlers("post")
