"""rowpost sagas list, show, history: what instances there are, what they know, and which messages made them so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any
from uuid import UUID

import typer

from rowpost.cli.command import command
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.printing import table
from rowpost.cli.session import Session
from rowpost.database.connection import Connection
from rowpost.errors import MessageCorrupt, SagaNotDeployed
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES, INVOKED_SAGAS, MESSAGE_ID, MESSAGE_INTENT, PROCESSING_ENDED
from rowpost.wire.message_types import split_enclosed_types

__all__ = ["PAGE", "SagaArgument", "app"]

app = typer.Typer(help="Look at sagas: long-running work, an instance each.", no_args_is_help=True)

PAGE = 500
LOAD_WAIT = 5000  # milliseconds

SagaArgument = Annotated[str, typer.Argument(metavar="SAGA", help="The saga's table, such as Sales_OrderPolicy.")]
InstanceArgument = Annotated[
    str, typer.Argument(metavar="INSTANCE", help="The instance's correlation value, or its id.")
]


@command(app, "list")
def list_sagas(
    session: Session,
    saga: Annotated[
        str | None, typer.Argument(metavar="[SAGA]", help="List the instances of this one.", show_default=False)
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many instances at most.")] = 100,
) -> None:
    """List the sagas that have a table here, or the instances of one."""
    with session.deployed() as database:
        if saga is None:
            _list_types(session, database)
            return
        name, by = _registered(session, database, saga)
        rows = islice(_instances(database, name), count)
        found = [_document(key, version, data, metadata, by) for key, _, version, _, data, metadata in rows]
    if session.as_json:
        session.document(found)
        return
    rows = [(each["instance"], each["id"], each["version"], json.dumps(each["state"], ensure_ascii=False)) for each in found]
    table(session.out, ("instance", "id", "version", "state"), rows, right=("version",))
    if not rows:
        session.note("No instance is under way.")


def _list_types(session: Session, database: Connection) -> None:
    names = ("saga", "found_by", "type", "second", "second_type")
    rows = [(row[0], *row[4:8]) for row in database.call("list_saga_types")]
    if session.as_json:
        session.document([dict(zip(names, row, strict=True)) for row in rows])
        return
    table(session.out, [name.replace("_", " ") for name in names], rows)
    if not rows:
        session.note("No saga has a table here: rowpost apply makes those of the environment's endpoints.")


@command(app)
def show(session: Session, saga: SagaArgument, instance: InstanceArgument) -> None:
    """Show an instance: its state, its version, and who asked for it."""
    with session.deployed() as database:
        found = _find(session, database, *_registered(session, database, saga), instance)
    if session.as_json:
        session.document(found)
        return
    facts = [("instance", found["instance"]), ("id", found["id"]), ("version", found["version"])]
    table(session.out, ("", ""), [*facts, *found["metadata"].items()])
    session.out.print(json.dumps(found["state"], ensure_ascii=False, indent=2))


@command(app)
def history(
    session: Session,
    saga: SagaArgument,
    instance: InstanceArgument,
    audit: Annotated[str, typer.Option("--audit", metavar="QUEUE", help="The audit queue to look through.")] = "audit",
    last: Annotated[int, typer.Option("--last", min=1, help="Look at so many messages at most, from the oldest on.")] = 100_000,
) -> None:
    """Show which messages came to an instance, as far as the audit queue still has them.

    An instance that is complete is named by its id.
    """
    with session.deployed() as database:
        name, by = _registered(session, database, saga)
        key = _as_id(instance) or UUID(_find(session, database, name, by, instance)["id"])
        found = [_entry(headers) for headers in islice(_audited(session, database, audit), last) if _came_to(headers, key)]
    if session.as_json:
        session.document(found)
        return
    table(session.out, ("handled", "message", "intent", "id"), [tuple(each.values()) for each in found])
    if not found:
        session.note(f"No message in {audit} came to it: endpoints keep copies where audit_queue names a queue.")


# ---------------------------------------------------------------------------------------------- from the database
def _registered(session: Session, database: Connection, name: str) -> tuple[str, str]:
    """The saga's name in the registry, and the property by which its instances are found. Raises SagaNotDeployed."""
    rows = database.call("list_saga_types")
    for row in rows:
        if session.text(name) in (row.saga_name, row.table_name):
            return row.saga_name, row.correlation_name
    known = ", ".join(row.saga_name for row in rows) or "none"
    raise SagaNotDeployed(f"No saga has the table {name!r} here. Known: {known}.")


def _instances(database: Connection, saga: str) -> Iterator[tuple]:
    anchor = None
    while page := database.call("list_sagas", saga, count=PAGE, after_id=anchor):
        yield from page
        anchor = page[-1].id


def _find(session: Session, database: Connection, saga: str, by: str, instance: str) -> dict[str, Any]:
    """An instance by its id, else by its correlation value. Raises Refused."""
    key = _as_id(instance)
    for place in ({"id": key}, {"correlation_value": instance}):
        if None not in place.values():
            for row in database.call("load_saga", saga, **place, locked=False, lock_timeout_ms=LOAD_WAIT):
                return _document(row.id, row.concurrency, row.data, row.metadata, by)
    raise Refused(
        f"The saga {saga} has no instance {session.text(instance)!r}: it is complete, or never started.", ExitCode.NOT_FOUND
    )


def _as_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _document(key: UUID, version: int, data: str, metadata: str, by: str) -> dict[str, Any]:
    state = json.loads(data)
    return {
        "instance": state.get(by),
        "id": str(key),
        "version": version,
        "state": state,
        "metadata": json.loads(metadata or "{}"),
    }


def _audited(session: Session, database: Connection, audit: str) -> Iterator[dict[str, str | None]]:
    """The headers of the audit queue's messages, oldest first; those that cannot be read are left out."""
    queue, anchor = session.queue(audit, database), None
    while page := queue.browse(PAGE, anchor, max_body_bytes=0):
        for message in page:
            try:
                yield message.headers
            except MessageCorrupt:
                continue
        anchor = page[-1].row_version


def _came_to(headers: dict[str, str | None], key: UUID) -> bool:
    return any(each.rpartition(":")[2] == str(key) for each in (headers.get(INVOKED_SAGAS) or "").split(";"))


def _entry(headers: dict[str, str | None]) -> dict[str, str | None]:
    return {
        "handled": headers.get(PROCESSING_ENDED),
        "message": next(iter(split_enclosed_types(headers.get(ENCLOSED_MESSAGE_TYPES))), None),
        "intent": headers.get(MESSAGE_INTENT),
        "id": headers.get(MESSAGE_ID),
    }
