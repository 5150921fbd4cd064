"""What rowpost run does: a supervisor, and a picture of it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from queue import SimpleQueue

from rich.console import Group
from rich.live import Live
from rich.text import Text

from rowpost.cli.depths import DepthWatch
from rowpost.cli.event_text import describe_event, describe_figures, event_document, style_of
from rowpost.cli.exits import ExitCode, Interrupted, Refused
from rowpost.cli.live import queue_table
from rowpost.cli.printing import visible
from rowpost.cli.session import Session
from rowpost.cli.supervision import supervise
from rowpost.endpoint.hosting import (
    check_outboxes,
    check_sagas,
    needed_queues,
    subscribe_all,
    with_endpoints,
    with_sagas,
)
from rowpost.errors import QueueNotFound, SettingsError
from rowpost.settings.environment import Settings
from rowpost.workers.events import Event
from rowpost.workers.snapshot import QueueSnapshot
from rowpost.workers.supervisor import Supervisor

__all__ = ["work"]

# Seconds between two pictures, and between two lines of figures where nobody watches.
DRAW_EVERY = 0.25
FIGURES_EVERY = 10.0


def work(session: Session, endpoints: list[str] | None, queue: list[str] | None, until_idle: bool) -> None:
    """Runs these endpoints, or else the environment's workers, or only those of the queues named, until a signal or
    until nothing waits.

    Raises SettingsError, QueueNotFound, HandlerNotFound, and Interrupted after Ctrl-C.
    """
    sys.path.insert(0, os.getcwd())  # handlers lie where the program is started
    settings = _chosen(session, endpoints, queue)
    worked = [each.name for each in settings.queues if each.worker is not None]
    told: SimpleQueue[Event] = SimpleQueue()
    supervisor = Supervisor(settings, on_event=told.put)
    _prepare(session, settings)
    until = (lambda snapshot: snapshot.idle) if until_idle else None
    with ExitStack() as stack:
        draw = _picture(session, settings, supervisor, told, worked, stack)
        stopped_by = supervise(supervisor, draw, DRAW_EVERY, until)
    queues = supervisor.snapshot().queues
    _print_totals(session, queues)
    if stopped_by is signal.SIGINT:
        raise Interrupted("running handlers finished; what waits stays in the queues")


def _chosen(session: Session, endpoints: list[str] | None, queues: list[str] | None) -> Settings:
    """The settings with workers for what was named on the command line."""
    if not endpoints:
        return _narrowed(session, queues)
    if queues:
        raise Refused("Name endpoints or --queue, not both: an endpoint works off its own queue.", ExitCode.USAGE)
    return with_endpoints(session.settings, endpoints)


def _narrowed(session: Session, names: list[str] | None) -> Settings:
    """The settings with workers for the queues that were named; all of them by default."""
    settings = session.settings
    if not names:
        return settings
    wanted = {session.name(name) for name in names}
    for queue in settings.queues:  # a queue's partitions are worked off in its place
        if queue.partitions and queue.name in wanted:
            wanted = wanted - {queue.name} | set(queue.partitions)
    without = [name for name in sorted(wanted) if (found := settings.queue(name)) is None or found.worker is None]
    if without:
        raise SettingsError(
            f"environment {settings.environment!r} gives the queue {without[0]!r} no worker: "
            "add `worker: {handler: module:function}` below it"
        )
    queues = tuple(each if each.name in wanted else replace(each, worker=None) for each in settings.queues)
    return replace(settings, queues=queues)


def _prepare(session: Session, settings: Settings) -> None:
    """Subscribes the endpoints. Raises QueueNotFound and SagaNotDeployed before any worker starts, SchemaMissing,
    SchemaTooNew, SettingsError."""
    check_outboxes(settings)
    with session.deployed() as database:
        registered = {row.queue_name for row in database.call("list_queues")}
        for name in needed_queues(settings):
            if name not in registered:
                raise QueueNotFound(f"The queue {name!r} is not deployed in {settings.target}. Run: rowpost apply")
        check_sagas(with_sagas(settings), database)
        subscribe_all(settings, database)


def _picture(
    session: Session,
    settings: Settings,
    supervisor: Supervisor,
    told: SimpleQueue[Event],
    worked: list[str],
    stack: ExitStack,
) -> Callable[[], None]:
    """The function that shows what is new: a live table, log lines, or JSON lines."""
    if session.as_json:
        return lambda: _drain(told, lambda event: session.document(event_document(event)))
    if not session.out.is_terminal:
        return _log(session, supervisor, told)
    watch = stack.enter_context(DepthWatch(settings, [*worked, settings.supervisor.error_queue]))
    live = stack.enter_context(Live(console=session.out, auto_refresh=False))
    title = Text(f"rowpost run · {visible(settings.environment)} · {visible(settings.target)} · Ctrl-C stops", "dim")

    def draw() -> None:
        _drain(told, lambda event: live.console.print(_line(event)))
        live.update(Group(title, queue_table(supervisor.snapshot(), watch.depths)), refresh=True)

    return draw


def _drain(told: SimpleQueue[Event], show: Callable[[Event], None]) -> None:
    while not told.empty():
        event = told.get()
        if describe_event(event) is not None:
            show(event)


def _line(event: Event) -> Text:
    text = f"{datetime.fromtimestamp(event.at):%H:%M:%S} {visible(' '.join((describe_event(event) or '').split()))}"
    return Text(text, style=style_of(event))


def _log(session: Session, supervisor: Supervisor, told: SimpleQueue[Event]) -> Callable[[], None]:
    """Events as they come, figures every ten seconds where they changed."""
    last: dict[str, QueueSnapshot] = {}
    due = time.monotonic() + FIGURES_EVERY

    def draw() -> None:
        nonlocal due
        _drain(told, lambda event: session.out.print(_line(event), soft_wrap=True))
        if time.monotonic() < due:
            return
        due = time.monotonic() + FIGURES_EVERY
        for queue in supervisor.snapshot().queues:
            if last.get(queue.queue) != queue:
                session.out.print(f"{datetime.now():%H:%M:%S} {visible(describe_figures(queue))}", soft_wrap=True)
            last[queue.queue] = queue

    return draw


def _print_totals(session: Session, queues: tuple[QueueSnapshot, ...]) -> None:
    for queue in queues:
        if session.as_json:
            counts = ("handled", "failed", "moved_to_error", "poison", "expired", "died")
            session.document({"event": "Totals", "queue": queue.queue} | {key: getattr(queue, key) for key in counts})
        else:
            session.out.print(visible(describe_figures(queue)), soft_wrap=True)
