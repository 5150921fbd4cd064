"""rowpost outbox status, clean: the outboxes in the environment's business databases."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

import typer

from rowpost.cli.command import command
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.formats import format_seconds
from rowpost.cli.printing import table
from rowpost.cli.session import Session
from rowpost.database.connection import Connection
from rowpost.errors import DatabaseUnavailable, PermissionDenied
from rowpost.operations.reading import outbox_figures
from rowpost.outbox.cleanup import (
    LEFT_BEHIND_AFTER_SECONDS,
    clean,
    clean_dispatches,
    list_left_behind,
    send_left_behind,
    why_unsent,
)
from rowpost.recoverability.policy import Host

__all__ = ["app"]

app = typer.Typer(help="Inspect and clean up outboxes.", no_args_is_help=True)
_COLUMNS = ("outbox", "records", "since (UTC)", "size", "unsent", "oldest unsent", "of others")
#: of so many unsent messages of an outbox the reasons are looked for
_REASONS = 100


@command(app)
def status(session: Session) -> ExitCode:
    """Show the size of outboxes and their unsent messages, with the reasons why they are unsent.

    Exit code 1 if a message of this environment has been unsent for a minute, or if a database is unreachable. "of
    others": unsent messages of endpoints that this environment does not have. Their environment's supervisors send
    them.
    """
    found: dict[str, dict[str, Any] | None] = {}
    for each in _businesses(session):
        found[str(each.outbox)] = _ask(session, each)
    if session.as_json:
        session.document([{"outbox": name, **_document(facts)} for name, facts in found.items()])
    else:
        rows = [_row(name, facts) for name, facts in found.items() if facts is not None]
        table(session.out, _COLUMNS, rows, right=("records", "size", "unsent", "oldest unsent", "of others"))
        for name, facts in found.items():
            _note_unsent(session, name, facts or {})
    late = [
        facts is None or (facts["oldest_undispatched_ms"] or 0) > LEFT_BEHIND_AFTER_SECONDS * 1000
        for facts in found.values()
    ]
    return ExitCode.FINDING if any(late) else ExitCode.OK


@command(app, "clean")
def clean_outboxes(session: Session) -> ExitCode:
    """Send pending messages, and delete records older than the retention time. Supervisors do it once a minute."""
    queues = _queues(session)
    retention = {each.name: each.retention for each in session.settings.outboxes}
    failed = False
    with session.deployed() as database:
        for each in _businesses(session):
            name = str(each.outbox)
            with each.deployed() as business:
                cared = send_left_behind(
                    database,
                    business,
                    queues,
                    error_queue=session.settings.supervisor.error_queue,
                    host_of=partial(Host.of_queue, settings=session.settings),
                )
                removed = clean(business, retention[name])
            forgotten = clean_dispatches(database, retention[name])
            failed = failed or bool(cared.failed)
            if session.as_json:
                session.document({"outbox": name, "sent": cared.sent, "settled": cared.settled, "removed": removed,
                                  "forgotten": forgotten, "failed": cared.failed})  # fmt: skip
            else:
                session.out.print(f"{name}: sent {cared.sent} pending, deleted {removed} expired.")
            for message, problem in ({} if session.as_json else cared.failed).items():
                session.note(f"Cannot send the pending messages of {message}, which was handled: {problem}")
    return ExitCode.FINDING if failed else ExitCode.OK


def _businesses(session: Session) -> list[Session]:
    """Return the sessions of the business databases. Raises Refused if there are none."""
    _, *others = session.databases()
    if not others:
        raise Refused(
            f"The environment {session.settings.environment} has no outboxes. Declare them below `outbox`.",
            ExitCode.SETTINGS,
        )
    return others


def _queues(session: Session) -> set[str]:
    return {queue.name for queue in session.settings.queues if queue.kind != "external"}


def _ask(session: Session, of_outbox: Session) -> dict[str, Any] | None:
    """Return the figures of an outbox. If the database is unreachable, print a note and return None."""
    queues = _queues(session)
    try:
        with of_outbox.deployed() as business:
            facts = outbox_figures(business, queues)
            late = facts["oldest_undispatched_ms"] or 0
            return {
                **facts,
                "unsent": _reasons(session, business, queues) if late > LEFT_BEHIND_AFTER_SECONDS * 1000 else [],
            }
    except DatabaseUnavailable as error:
        session.note(str(error))
        return None


def _reasons(session: Session, business: Connection, queues: set[str]) -> list[dict[str, Any]]:
    """Return the messages that have been unsent for a minute, up to 100, with the reason; null: nothing prevents that
    they are sent.
    """
    found: list[dict[str, Any]] = []
    try:
        with session.deployed() as database:
            for queue, message_id in islice(list_left_behind(business, queues), _REASONS):
                reason = why_unsent(
                    database, business, queue, message_id, error_queue=session.settings.supervisor.error_queue
                )
                found.append({"endpoint": queue, "message_id": message_id, "reason": reason})
    except PermissionDenied as error:
        session.note(f"The reasons are not shown, because the login may not read the unsent messages: {error}")
    return found


def _note_unsent(session: Session, name: str, facts: dict[str, Any]) -> None:
    for each in facts.get("unsent", ()):
        why = (
            f"cannot be sent: {each['reason']}"
            if each["reason"]
            else "are sent by the next round of a supervisor, or by `rowpost outbox clean`."
        )
        session.note(
            f"{name}: the outgoing messages of message {each['message_id']} of {each['endpoint']}, which was handled, "
            f"{why}"
        )
    left_out = facts.get("undispatched", 0) - len(facts.get("unsent", ()))
    if facts.get("unsent") and left_out > 0:
        session.note(f"{name}: {left_out:,} more are unsent.")


def _document(facts: dict[str, Any] | None) -> dict[str, Any]:
    if facts is None:
        return {"reached": False}
    since: datetime | None = facts["oldest_record_at"]
    return {"reached": True, **facts, "oldest_record_at": since and since.isoformat() + "Z"}


def _row(name: str, facts: dict[str, Any]) -> tuple[str, ...]:
    since, size, late = facts["oldest_record_at"], facts["total_bytes"], facts["oldest_undispatched_ms"]
    return (
        name,
        "?" if facts["records"] is None else f"{facts['records']:,}",
        "-" if since is None else f"{since:%Y-%m-%d %H:%M:%S}",
        "?" if size is None else f"{size / 1024:,.0f} KB",
        f"{facts['undispatched']:,}",
        "-" if late is None else format_seconds(late / 1000),
        f"{facts['foreign_undispatched']:,}",
    )
