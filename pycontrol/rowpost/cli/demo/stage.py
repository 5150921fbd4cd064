"""Deploy and fill the demo's queues, and count the result."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from rowpost.cli.demo.handlers import statement
from rowpost.cli.demo.scenario import AUDIT, BILLING, ERROR, SALES, SUPERVISOR, DemoResult, queues
from rowpost.cli.formats import PEEK_LIMIT
from rowpost.database.connection import Connection
from rowpost.deploy.apply import apply
from rowpost.deploy.entries import describe_queue
from rowpost.deploy.plan import plan
from rowpost.deploy.queues import drop_queue
from rowpost.deploy.sql_text import render
from rowpost.errors import MessageCorrupt, SchemaMissing
from rowpost.operations.figures import registered_queues
from rowpost.settings.environment import QueueSettings, Settings
from rowpost.transport.queue import Queue
from rowpost.wire.headers import EXCEPTION_MESSAGE, FORWARD_DESTINATION
from rowpost.wire.message import BrowsedMessage

__all__ = ["Stage"]

WIRE = Path(__file__).parent / "wire"


class Stage:
    """The demo's queues and its business table, in the environment's default schema."""

    def __init__(self, settings: Settings, workers: int) -> None:
        self.names = {name: settings.naming.canonical(name) for name in (BILLING, SALES, ERROR, AUDIT)}
        declared = settings.queues if settings.embedded else ()
        self.settings = replace(
            settings,
            queues=(*(replace(queue, worker=None) for queue in declared), *queues(workers, self.names)),
            supervisor=replace(SUPERVISOR, error_queue=self.names[ERROR]),
        )

    def set(self, database: Connection) -> None:
        """Delete what an earlier demo left, deploy, and send all messages except the burst."""
        self.clear(database)
        apply(database, plan(self.settings))
        self._run(database, "business_table")
        for message in _wire_messages():
            queue = Queue(self.names[f"Demo.{message['queue']}"], database)
            arrived = {FORWARD_DESTINATION: queue.name} if FORWARD_DESTINATION in message["headers"] else {}
            queue.send(message["body"].encode(), message["headers"] | arrived)
        self._run(database, "foreign_rows")

    def clear(self, database: Connection) -> None:
        """Drop the demo's queues and its table."""
        try:
            registered = {row.queue_name for row in registered_queues(database)}
        except SchemaMissing:
            return
        for name in registered & set(self.names.values()):
            drop_queue(database, name)
        self._run(database, "drop_business_table")

    def count(self, database: Connection, expired: int) -> DemoResult:
        """Count the result. `expired` is the supervisor's count of expired messages."""
        ((handled, once, burst, burst_once),) = database.dialect.script(
            database.driver_connection, statement(database.engine, "count_orders")
        )
        depth = {name: Queue(address, database).peek(PEEK_LIMIT) for name, address in self.names.items()}
        waiting = depth[BILLING] + depth[SALES]
        return DemoResult(handled, once, burst, burst_once, depth[ERROR], depth[AUDIT], expired, waiting)

    def errors(self, database: Connection) -> list[dict[str, str]]:
        """Return the id and the reason of each message in the error queue."""
        messages = Queue(self.names[ERROR], database).browse(100, max_body_bytes=0)
        return [{"id": str(message.id), "reason": _reason(message)} for message in messages]

    def _run(self, database: Connection, name: str) -> None:
        entry = describe_queue(QueueSettings(self.names[BILLING]), database.engine)
        text = render(statement(database.engine, name), entry.placeholders(database.dialect), database.engine)
        with database.translated():
            database.dialect.script(database.driver_connection, text)


def _wire_messages() -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(WIRE.glob("*.json"))]


def _reason(message: BrowsedMessage) -> str:
    try:
        return message.headers.get(EXCEPTION_MESSAGE) or "no reason given"
    except MessageCorrupt as error:
        return str(error)
