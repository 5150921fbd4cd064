"""rowpost queue metrics, maintain: measure queues and maintain their tables."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated

import typer

from rowpost.cli.command import AllQueuesArgument
from rowpost.cli.exits import ExitCode
from rowpost.cli.printing import table
from rowpost.cli.session import Session
from rowpost.database.connection import Connection
from rowpost.errors import FeatureMissing, PermissionDenied
from rowpost.operations.figures import registered_queues
from rowpost.operations.schedules import lateness
from rowpost.transport.jobs import clean_jobs
from rowpost.transport.maintenance import MaintenanceStep, Metrics, maintain_queue, queue_metrics

__all__ = ["maintain", "show_metrics"]

_COLUMNS = ("queue", "depth", "oldest", "expired", "in", "out", "table", "indexes", "dead rows")


def show_metrics(
    session: Session,
    name: AllQueuesArgument = None,
    over: Annotated[
        float,
        typer.Option(
            "--over",
            metavar="SECONDS",
            help="Measure twice, this many seconds apart, and show rates per second.",
            min=0.0,
        ),
    ] = 0.0,
) -> None:
    """Show depth, age, counters and sizes of queues from the server's metadata, without scanning tables."""
    with session.deployed() as database:
        queues = _own_queues(session, database, name)
        before = {queue: queue_metrics(database, queue) for queue in queues} if over else {}
        if over:
            time.sleep(over)
        metrics = {queue: queue_metrics(database, queue) for queue in queues}
        late = {queue: each for queue, each in lateness(database).items() if queue in metrics}
    rates = {queue: metrics[queue].rates(before[queue]) for queue in before}
    if session.as_json:
        session.document(
            [
                _document(queue, each, rates.get(queue)) | {"schedule_late_ms": late.get(queue)}
                for queue, each in metrics.items()
            ]
        )
        return
    leases = any(each.leased is not None for each in metrics.values())
    rows = [_row(queue, each, rates.get(queue), leases=leases) for queue, each in metrics.items()]
    columns = (*_COLUMNS[:2], *(["leased"] if leases else []), *_COLUMNS[2:])
    if late:  # only where a queue has schedules
        columns = (*columns, "schedule late s")
        rows = [
            (*row, f"{late[queue] / 1000:,.0f}" if queue in late else "")
            for queue, row in zip(metrics, rows, strict=True)
        ]
    table(session.out, columns, rows, right=columns[1:])


def maintain(
    session: Session,
    name: AllQueuesArgument = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Also run statements that lock out senders and receivers while they run.")
    ] = False,
) -> ExitCode:
    """Maintain the tables of queues: dead rows, bloat, statistics, settings. Exit code 1 if a step was not done.

    Without a queue, delete what Spark's jobs no longer need too.
    """
    done: list[tuple[str, MaintenanceStep]] = []
    with session.deployed() as database:
        for queue in _own_queues(session, database, name):
            done += [(queue, step) for step in maintain_queue(database, queue, offline=offline)]
        done += [] if name is not None else [("-", step) for step in _clean_jobs(database)]
    waiting = [step for _, step in done if step.state != "done"]
    document = {"clean": not waiting, "steps": [{"queue": queue, **asdict(step)} for queue, step in done]}
    rows = [(queue, step.action, step.state, step.error or step.reason, step.statement) for queue, step in done]
    columns = ("queue", "action", "state", "reason", "statement")
    session.listing(document, columns, rows, none="No maintenance needed.", instead=True)
    return ExitCode.FINDING if waiting else ExitCode.OK


def _clean_jobs(database: Connection) -> list[MaintenanceStep]:
    try:
        cleaned = clean_jobs(database)
    except FeatureMissing:
        return []
    except PermissionDenied as error:
        return [MaintenanceStep("jobs", "Spark's jobs are cleaned by an operator", "", "waits", str(error))]
    deleted = f"{cleaned.staged} stored messages of jobs that ended, and {cleaned.sent} old ledger entries deleted"
    return [MaintenanceStep("jobs", deleted, "", "done")] if cleaned.staged or cleaned.sent else []


def _own_queues(session: Session, database: Connection, name: str | None) -> list[str]:
    if name is not None:
        return [session.name(name)]
    return [row.queue_name for row in registered_queues(database) if row.kind != "external"]


def _document(queue: str, metrics: Metrics, rates: tuple[float | None, float | None] | None) -> dict[str, object]:
    document = {"queue": queue, **asdict(metrics), "measured_at": metrics.measured_at.isoformat() + "Z"}
    return document if rates is None else document | {"enqueued_per_second": rates[0], "dequeued_per_second": rates[1]}


def _row(
    queue: str, metrics: Metrics, rates: tuple[float | None, float | None] | None, *, leases: bool
) -> tuple[str, ...]:
    moved = (metrics.enqueued, metrics.dequeued) if rates is None else rates
    unit = "" if rates is None else "/s"
    return (
        queue,
        _number(metrics.depth),
        *(["-" if metrics.leased is None else _number(metrics.leased)] if leases else []),
        "-" if metrics.oldest_age_ms is None else f"{metrics.oldest_age_ms / 1000:,.1f} s",
        _number(metrics.expired),
        *(_number(each) + unit for each in moved),
        _size(metrics.table_bytes),
        _size(metrics.index_bytes),
        _number(metrics.dead_rows),
    )


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}"


def _size(value: int | None) -> str:
    return "?" if value is None else f"{value / 1024:,.0f} KB"
