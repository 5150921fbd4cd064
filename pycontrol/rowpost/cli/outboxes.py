"""rowpost outbox status, clean: the business databases whose outboxes the environment names."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import typer

from rowpost.cli.command import command
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.live import show_seconds
from rowpost.cli.printing import table
from rowpost.cli.session import Session
from rowpost.database.contract import load_contract
from rowpost.errors import DatabaseUnavailable
from rowpost.outbox.cleanup import LEFT_BEHIND_AFTER_SECONDS, clean, clean_dispatches, send_left_behind

__all__ = ["app"]

app = typer.Typer(help="Look after outboxes: handled messages, and what they caused.", no_args_is_help=True)
_COLUMNS = ("outbox", "remembered", "since (UTC)", "size", "not sent yet", "for")


@command(app)
def status(session: Session) -> ExitCode:
    """Show how full outboxes are and what has not left; exit code 1 if something waits for a minute, or is out of reach."""
    found: dict[str, dict[str, Any] | None] = {}
    for each in _businesses(session):
        found[str(each.outbox)] = _ask(each)
    if session.as_json:
        session.document([{"outbox": name, **_document(facts)} for name, facts in found.items()])
    else:
        rows = [_row(name, facts) for name, facts in found.items() if facts is not None]
        table(session.out, _COLUMNS, rows, right=("remembered", "size", "not sent yet", "for"))
    late = [facts is None or (facts["oldest_undispatched_ms"] or 0) > LEFT_BEHIND_AFTER_SECONDS * 1000 for facts in found.values()]
    return ExitCode.FINDING if any(late) else ExitCode.OK


@command(app, "clean")
def clean_outboxes(session: Session) -> ExitCode:
    """Send what was left behind, and forget what is older than the retention time; supervisors do it once a minute."""
    queues = {queue.name for queue in session.settings.queues if queue.kind != "external"}
    retention = {each.name: each.retention for each in session.settings.outboxes}
    failed = False
    with session.deployed() as database:
        for each in _businesses(session):
            name = str(each.outbox)
            with each.deployed() as business:
                cared = send_left_behind(database, business, queues)
                removed = clean(business, retention[name])
            forgotten = clean_dispatches(database, retention[name])
            failed = failed or bool(cared.failed)
            if session.as_json:
                session.document({"outbox": name, "sent": cared.sent, "settled": cared.settled, "removed": removed,
                                  "forgotten": forgotten, "failed": cared.failed})  # fmt: skip
            else:
                session.out.print(f"{name}: sent what {cared.sent} messages had left behind, forgot {removed} that are old.")
            for message, problem in ({} if session.as_json else cared.failed).items():
                session.note(f"{message} was handled, and what it caused cannot be sent: {problem}")
    return ExitCode.FINDING if failed else ExitCode.OK


def _businesses(session: Session) -> list[Session]:
    """Raises Refused when there is none."""
    _, *others = session.databases()
    if not others:
        raise Refused(f"{session.settings.environment} has no outboxes: name them below `outbox`.", ExitCode.SETTINGS)
    return others


def _ask(session: Session) -> dict[str, Any] | None:
    """The figures; None, and a note, where the database is out of reach."""
    names = [column.name for column in load_contract().find("outbox_status", "database").result]
    try:
        with session.deployed() as business:
            return dict(zip(names, business.call("outbox_status")[0], strict=True))
    except DatabaseUnavailable as error:
        session.note(str(error))
        return None


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
        "-" if late is None else show_seconds(late / 1000),
    )
