"""The JSON behind the pages, and the OpenAPI document that describes it. Version 1 reads, and begins, resumes and cancels bulk operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.responses import Response

from rowpost.dashboard import bulk, following, operation_documents, reading
from rowpost.dashboard import documents as made
from rowpost.dashboard.visit import Handler, Visit
from rowpost.errors import InvalidCount
from rowpost.sagas.instances import as_id
from rowpost.version import __version__

__all__ = ["OPERATIONS", "POSTS", "ROUTES", "openapi"]

LIST = 1_000
BODY_BYTES = 64 * 1024


@dataclass(frozen=True)
class Operation:
    """One path: what answers it, the type of its document, and its parameters with their descriptions.

    A parameter whose name ends with * is required, and one that `numbers` names is a number. The parameters of a POST are the members of a JSON
    object.
    """

    path: str
    answer: Callable[[Visit], Any]
    document: type
    summary: str
    parameters: tuple[tuple[str, str], ...] = ()
    numbers: tuple[str, ...] = ()
    method: str = "get"


def _required(visit: Visit, name: str) -> str:
    value = visit.argument(name)
    if not value:
        raise InvalidCount(f"The parameter {name} is missing.")
    return value


def _row(visit: Visit) -> int:
    return _number(visit, "row")


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


def _queues(visit: Visit) -> made.QueuePage:
    return reading.queue_page(visit.site.monitor.latest(), visit.site.settings, visit.argument("search"), visit.argument("after"))


def _queue(visit: Visit) -> made.QueueDocument:
    return reading.queue_document(visit.site.monitor.find(_required(visit, "name")), visit.site.settings)


def _messages(visit: Visit) -> made.MessagePage:
    with visit.site.pool.connection() as database:
        return reading.messages(database, _required(visit, "name"), visit.number("after"), _count(visit, 50, 200), BODY_BYTES)


def _delayed(visit: Visit) -> made.DelayedPage:
    with visit.site.pool.connection() as database:
        return reading.delayed(database, _required(visit, "name"), _count(visit, reading.DELAYED))


def _failed(visit: Visit) -> made.FailedPage:
    with visit.site.pool.connection() as database:
        key, after = visit.argument("cause") or None, visit.number("after")
        return reading.failed_page(database, visit.error_queue, bulk.failed_filter(visit), key, after, _count(visit, 50))


def _failed_message(visit: Visit) -> made.FailedDetail:
    with visit.site.pool.connection() as database:
        return reading.failed_detail(database, visit.error_queue, _row(visit))


def _message(visit: Visit) -> made.MessageDocument:
    with visit.site.pool.connection() as database:
        return reading.one_message(database, _required(visit, "name"), _row(visit))


def _message_life(visit: Visit) -> made.MessageLifeDocument:
    with visit.site.pool.connection() as database:
        return following.life_page(database, visit.site.settings, _required(visit, "id"))


def _conversation(visit: Visit) -> made.ConversationDocument:
    with visit.site.pool.connection() as database:
        return following.conversation_page(database, _required(visit, "id"))


def _subscriptions(visit: Visit) -> made.Subscriptions:
    with visit.site.pool.connection() as database:
        return reading.subscriptions(database, visit.argument("search"), visit.number("after") or 0)


def _sagas(visit: Visit) -> made.SagaTypes:
    with visit.site.pool.connection() as database:
        return reading.saga_types(database)


def _instances(visit: Visit) -> made.SagaInstances:
    with visit.site.pool.connection() as database:
        return reading.saga_instances(database, _required(visit, "saga"), as_id(visit.argument("after")), _count(visit, 50))


def _instance(visit: Visit) -> made.SagaDetail:
    saga, instance = _required(visit, "saga"), _required(visit, "instance")
    with visit.site.pool.connection() as database:
        return following.saga_page(database, saga, instance)


def _supervisors(visit: Visit) -> made.Supervisors:
    with visit.site.pool.connection() as database:
        return reading.supervisors(database)


def _operations(visit: Visit) -> operation_documents.OperationPage:
    return bulk.read_operations(visit, _count(visit, 50))


def _operation(visit: Visit) -> operation_documents.OperationDocument:
    return bulk.read_operation(visit, _number(visit))


def _begin(visit: Visit) -> operation_documents.OperationDocument:
    return bulk.read_operation(visit, bulk.start(visit))


def _resume(visit: Visit) -> operation_documents.OperationDocument:
    return bulk.read_operation(visit, bulk.resume_one(visit, _number(visit)))


def _cancel(visit: Visit) -> operation_documents.CancelDocument:
    return bulk.request_cancel(visit, _number(visit))


def _deployment(visit: Visit) -> made.Deployment:
    with visit.site.pool.connection() as database:
        return reading.read_deployment(database, visit.site.settings, read_only=visit.site.read_only)


def _verification(visit: Visit) -> made.Verification:
    with visit.site.pool.connection() as database:
        return reading.verification(database, visit.site.settings)


_NAME = ("name*", "the queue's name")
_ROW = ("row*", "the row version of the message")
_ERRORS = ("queue", "the error queue; by default the environment's")
_SEARCH = ("search", "only names that contain this text")
_FILTER = (
    ("failed_queue", "only messages that failed in this queue"), ("exception", "only messages whose exception type or text contains this"),
    ("type", "only messages whose type contains this"), ("since", "only messages that failed then or later: 2h ago, or a time of ISO 8601"),
    ("cause", "only messages of the group with this key"),
)  # fmt: skip
_NUMBER = ("number*", "the operation's number")
_SELECTION = (_ERRORS, *_FILTER, ("after", "only messages after this row version"), ("up_to", "only messages up to this row version"))
_HEADER = (("header", "for edit: the header that is set or removed"), ("value", "its new value, which is not on record"))
OPERATIONS = (
    Operation("/api/v1/queues", _queues, made.QueuePage, "List queues with their figures, by name, 200 a page", (_SEARCH, ("after", "only names after this one"))),
    Operation("/api/v1/queue", _queue, made.QueueDocument, "Read the figures of one queue", (_NAME,)),
    Operation("/api/v1/messages", _messages, made.MessagePage, "Browse the messages of a queue, oldest first", (_NAME, ("after", "only messages after this row version"), ("count", "1 to 200, by default 50")), ("after", "count")),
    Operation("/api/v1/message", _message, made.MessageDocument, "Read one message", (_NAME, _ROW), ("row",)),
    Operation("/api/v1/delayed", _delayed, made.DelayedPage, "List the delayed messages of a queue that are due next", (_NAME, ("count", "1 to 200, by default 20")), ("count",)),
    Operation("/api/v1/failed", _failed, made.FailedPage, "Search failed messages, and group them by cause", (_ERRORS, *_FILTER, ("after", "only messages after this row version"), ("count", "1 to 1000, by default 50")), ("after", "count")),
    Operation("/api/v1/failed-message", _failed_message, made.FailedDetail, "Read one failed message", (_ERRORS, _ROW), ("row",)),
    Operation("/api/v1/message-life", _message_life, made.MessageLifeDocument, "Put together what all tables know of one message", (("id*", "the id of the message, or of its row"),)),
    Operation("/api/v1/conversation", _conversation, made.ConversationDocument, "List the messages of a conversation as a tree", (("id*", "the id of the conversation"),)),
    Operation("/api/v1/subscriptions", _subscriptions, made.Subscriptions, "List subscriptions, 500 a page", (_SEARCH, ("after", "how many to leave out")), ("after",)),
    Operation("/api/v1/sagas", _sagas, made.SagaTypes, "List the types of sagas"),
    Operation("/api/v1/saga-instances", _instances, made.SagaInstances, "List the instances of a saga", (("saga*", "the saga's table"), ("after", "only instances after this id"), ("count", "1 to 1000, by default 50")), ("count",)),
    Operation("/api/v1/saga-instance", _instance, made.SagaDetail, "Find an instance of a saga, with its timeouts", (("saga*", "the saga's table"), ("instance*", "the correlation value or the id"))),
    Operation("/api/v1/supervisors", _supervisors, made.Supervisors, "List the supervisors of all hosts with their workers"),
    Operation("/api/v1/preview", bulk.read_preview, operation_documents.BulkPreview, "Count the failed messages to which an operation would apply, and show examples", _SELECTION, ("after", "up_to")),
    Operation("/api/v1/operations", _operations, operation_documents.OperationPage, "List what operators did, the last operation first", (("before", "only operations with a lower number"), ("count", "1 to 1000, by default 50")), ("before", "count")),
    Operation("/api/v1/operation", _operation, operation_documents.OperationDocument, "Read one operation, and how far it is", (_NUMBER,), ("number",)),
    Operation("/api/v1/operations/begin", _begin, operation_documents.OperationDocument, "Begin a bulk operation on failed messages, in the background", (("operation*", "retry, discard, move or edit"), *_SELECTION, ("to", "the queue to which they go"), *_HEADER, ("remove", "1: remove the header"), ("reason", "why; needed to discard")), ("after", "up_to"), "post"),
    Operation("/api/v1/operations/cancel", _cancel, operation_documents.CancelDocument, "Ask an operation to stop", (_NUMBER,), ("number",), "post"),
    Operation("/api/v1/operations/resume", _resume, operation_documents.OperationDocument, "Go on with an operation that was interrupted, cancelled or failed", (_NUMBER, *_HEADER), ("number",), "post"),
    Operation("/api/v1/deployment", _deployment, made.Deployment, "Read what is deployed"),
    Operation("/api/v1/verification", _verification, made.Verification, "Compare the database with the plan"),
)  # fmt: skip


def openapi(base: str = "") -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the interface, made from its operations and their types. `base`: the path below which it is served."""
    types = [*{each.document: None for each in OPERATIONS}, made.Problem]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    problem = {"description": "Why there is no answer", "content": {"application/json": {"schema": schemas[-1]}}}
    paths = {}
    for each in OPERATIONS:
        schema = schemas[types.index(each.document)]
        paths[each.path] = {
            each.method: {
                "operationId": each.path.removeprefix("/api/v1/").replace("/", "_").replace("-", "_"),
                "summary": each.summary,
                **_given(each),
                "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}, "default": problem},
            }
        }
    information = {"title": "rowpost dashboard", "version": "1", "description": f"Made from rowpost {__version__}. GET only reads."}
    servers = {"servers": [{"url": base}]} if base else {}
    return {"openapi": "3.1.0", "info": information, **servers, "paths": paths, "components": {"schemas": components}}


def _given(operation: Operation) -> dict[str, Any]:
    """Return the parameters of an operation: of its address, or of the object that is posted."""
    parameters = [_parameter(name, text, operation.numbers) for name, text in operation.parameters]
    if operation.method == "get":
        return {"parameters": parameters}
    members = {each["name"]: {**each["schema"], "description": each["description"]} for each in parameters}
    schema = {"type": "object", "properties": members, "required": [each["name"] for each in parameters if each["required"]]}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _parameter(name: str, text: str, numbers: tuple[str, ...]) -> dict[str, Any]:
    plain = name.rstrip("*")
    kind = {"type": "integer", "minimum": 0} if plain in numbers else {"type": "string"}
    return {"name": plain, "in": "query", "required": name.endswith("*"), "description": text, "schema": kind}


def _as_json(answer: Callable[[Visit], Any]) -> Handler:
    return lambda visit: Response(msgspec.json.encode(answer(visit)), media_type="application/json")


ROUTES: tuple[tuple[str, Handler], ...] = (
    *((each.path, _as_json(each.answer)) for each in OPERATIONS if each.method == "get"),
    ("/api/v1/openapi.json", _as_json(lambda visit: openapi(visit.base))),
)
POSTS: tuple[tuple[str, Handler], ...] = tuple((each.path, _as_json(each.answer)) for each in OPERATIONS if each.method == "post")
