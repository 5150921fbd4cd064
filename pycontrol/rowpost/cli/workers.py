"""rowpost workers: which supervisors and workers there are, on all hosts."""

from __future__ import annotations

from collections import Counter

from rowpost.cli.formats import format_seconds
from rowpost.cli.printing import table
from rowpost.cli.session import Session
from rowpost.operations.reading import handled_queues, supervisors
from rowpost.transport.leases import LeasedMessage, progress_of_rows
from rowpost.transport.supervisors import ReportedWorker, SupervisorPresence, supervisors_of

__all__ = ["workers"]

#: workers of one login that are printed: a login that only receives may report any number of them
PRINTED = 1000


def workers(session: Session) -> None:
    """List the supervisors of all hosts with their workers, as each last reported them; a supervisor reports every ten
    seconds.
    """
    with session.deployed() as database:
        if session.as_json:
            session.document(supervisors(database).supervisors)
            return
        found = supervisors_of(database)
        leased = progress_of_rows(database, handled_queues(found))
    printed: Counter[str] = Counter()
    for each in found:
        seen = (
            f"GONE: silent for {format_seconds(each.silent)}"
            if each.gone
            else f"seen {format_seconds(each.silent)} ago"
        )
        session.out.print(
            f"{each.host}, process {each.process_id}, {each.environment}, rowpost {each.version}, login {each.login},"
            f" since {each.started_at:%Y-%m-%d %H:%M:%S} UTC, {seen}",
            soft_wrap=True,
        )
        if each.unreadable:
            session.note(
                f"The report of the supervisor {each.supervisor_id} cannot be read. The login {each.login} wrote it."
            )
            continue
        if each.too_long:
            session.note(
                f"The workers of the supervisor {each.supervisor_id} are left out. Newer reports of its login have "
                "1,000,000 characters together."
            )
            continue
        rows = [_row(each, worker, leased) for worker in each.workers[: PRINTED - printed[each.login]]]
        printed[each.login] += len(rows)
        columns = ("queue", "worker", "state", "for", "message", "handled for", *(["progress"] if leased else []))
        table(session.out, columns, rows, right=("worker",))
        if len(rows) < len(each.workers):
            session.note(
                f"{len(each.workers) - len(rows):,} more workers of this supervisor are not printed. To list them, add "
                "--json."
            )
    if not found:
        session.note("No supervisor has reported in the last day. To start one, run: rowpost run")


def _row(
    supervisor: SupervisorPresence, worker: ReportedWorker, leased: dict[str, LeasedMessage]
) -> tuple[object, ...]:
    handled = "" if worker.message_seconds is None else format_seconds(worker.message_seconds + supervisor.silent)
    return (
        worker.queue,
        worker.process_id,
        worker.state,
        format_seconds(worker.seconds + supervisor.silent),
        worker.message or "",
        handled,
        *([held.progress if (held := leased.get(worker.message or "")) else ""] if leased else []),
    )
