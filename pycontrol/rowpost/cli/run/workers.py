"""Run a supervisor in a thread, display its queues and events, and pass signals on to it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from queue import SimpleQueue
from types import FrameType
from typing import Any, Protocol

from rich.console import Group
from rich.live import Live
from rich.text import Text

from rowpost.cli import hangups
from rowpost.cli.current_folder import import_from_current_folder
from rowpost.cli.exits import ExitCode, Interrupted, Refused
from rowpost.cli.printing import visible
from rowpost.cli.run.depths import DepthWatch
from rowpost.cli.run.event_text import describe_event, describe_figures, event_document, style_of
from rowpost.cli.run.live_table import queue_table
from rowpost.cli.run.output import lines_left_out, patient
from rowpost.cli.run.selection import Selection
from rowpost.cli.session import PRODUCTION, Session
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.endpoint.hosting import (
    check_outboxes,
    check_sagas,
    needed_queues,
    subscribe_all,
    with_needs,
    with_sagas,
)
from rowpost.errors import QueueNotFound
from rowpost.settings.environment import Settings
from rowpost.settings.password import hurry
from rowpost.workers.events import Event, level_of
from rowpost.workers.snapshot import QueueSnapshot
from rowpost.workers.supervision.supervisor import Supervisor

__all__ = ["Supervised", "supervise", "work"]

DRAW_INTERVAL_S = 0.25
#: between two lines of figures if the output is not a terminal
FIGURES_INTERVAL_S = 10.0


def work(session: Session, selection: Selection, until_idle: bool, *, install: bool = False, plain: bool = False) -> None:
    """Run the given endpoints, or the environment's workers, until a signal arrives or all queues are idle.

    Args:
        session: the call of the program.
        selection: what the command line selects of the environment.
        until_idle: stop when no messages are waiting.
        install: first deploy what the workers need and the databases do not have.
        plain: write lines on a terminal too.

    Raises:
        Refused: `install` in an environment named production.
        SettingsError: a named queue has no worker, or metrics cannot be served.
        QueueNotFound: a needed queue is not deployed.
        HandlerNotFound: a handler cannot be imported.
        Interrupted: Ctrl-C was pressed.
    """
    import_from_current_folder()
    settings = selection.settings(session)
    if install:
        _install(session, settings)
    worked = [each.name for each in settings.queues if each.worker is not None]
    queued_events: SimpleQueue[Event] = SimpleQueue()
    supervisor = Supervisor(
        settings,
        on_event=queued_events.put,
        load=lambda: selection.settings(Session(session.environment, session.as_json)),
    )
    _prepare(session, settings)
    until = (lambda snapshot: snapshot.idle) if until_idle else None
    with patient(session, lines_left_out(as_json=_as_json(session))):
        with ExitStack() as stack:
            draw = _make_draw(session, settings, supervisor, queued_events, worked, stack, plain=plain)
            stopped_by = supervise(supervisor, draw, DRAW_INTERVAL_S, until, on_hangup=supervisor.reload)
        _print_totals(session, supervisor.snapshot().queues, plain=plain)
    if stopped_by is signal.SIGINT:
        raise Interrupted("running handlers finished; waiting messages stay in their queues")


def _install(session: Session, settings: Settings) -> None:
    """Deploy what the workers need, also into the business databases of outboxes. Raises Refused."""
    if settings.environment == PRODUCTION:
        raise Refused("run --install is for development. In production, review rowpost plan, and run rowpost apply.", ExitCode.USAGE)
    main, *business = session.databases()
    for each, wanted in ((main, with_needs(settings)), *((each, each.settings) for each in business)):
        with each.connected() as database:
            made = apply(database, plan(wanted)).applied
        if made:
            session.note(
                f"Installed in {wanted.target}: {len(made)} objects, for {', '.join(queue.name for queue in wanted.queues) or 'the outbox'}."
            )


def _prepare(session: Session, settings: Settings) -> None:
    """Check queues, sagas and outboxes, and subscribe the endpoints, before any worker starts.

    Raises QueueNotFound, SagaNotDeployed, FeatureMissing, SchemaMissing, SchemaTooNew and SettingsError.
    """
    has_outbox = check_outboxes(settings)
    with session.deployed() as database:
        if has_outbox:
            database.call("outbox_status")  # raises FeatureMissing
        registered = {row.queue_name for row in database.call("list_queues")}
        for name in needed_queues(settings):
            if name not in registered:
                declare = "" if session.settings.queue(name) else f"Add `{name}: {{}}` to the queues of the environment {settings.environment!r}. "
                raise QueueNotFound(
                    f"The queue {name!r} is not deployed in {settings.target}. {declare}Run: rowpost apply. "
                    "In development, rowpost run --install creates what is missing."
                )
        check_sagas(with_sagas(settings), database)
        subscribe_all(settings, database)
        for text in database.dialect.encoding_limits(database.driver_connection):
            session.note(text)
        with database.translated():
            for text in database.dialect.session_limits(database.driver_connection):
                session.note(f"The server limits how long handlers may work. {text}")


def _make_draw(
    session: Session,
    settings: Settings,
    supervisor: Supervisor,
    queued_events: SimpleQueue[Event],
    worked: list[str],
    stack: ExitStack,
    *,
    plain: bool = False,
) -> Callable[[], None]:
    """Return the function that displays changes: as a live table, as log lines or as JSON lines."""
    level = settings.log.number
    if _as_json(session):
        return lambda: _drain(queued_events, level, lambda event: session.document(event_document(event)))
    if plain or not session.out.is_terminal or session.out.is_dumb_terminal:
        return _log(session, supervisor, queued_events, level, plain=plain)
    watch = stack.enter_context(DepthWatch(settings, [*worked, settings.supervisor.error_queue]))
    live = stack.enter_context(Live(console=session.out, auto_refresh=False))
    title = Text(f"rowpost run · {visible(settings.environment)} · {visible(settings.target)} · Ctrl-C stops", "dim")

    def draw() -> None:
        _drain(queued_events, level, lambda event: live.console.print(_line(event)))
        live.update(Group(title, queue_table(supervisor.snapshot(), watch.depths)), refresh=True)

    return draw


def _as_json(session: Session) -> bool:
    return session.as_json or session.settings.log.format == "json"


def _drain(queued_events: SimpleQueue[Event], level: int, show: Callable[[Event], None]) -> None:
    while not queued_events.empty():
        event = queued_events.get()
        if level_of(event) >= level and describe_event(event) is not None:
            show(event)


def _line(event: Event, *, plain: bool = False) -> Text:
    text = f"{datetime.fromtimestamp(event.at):%H:%M:%S} {visible(' '.join((describe_event(event) or '').split()))}"
    return Text(text, style="" if plain else style_of(event))


def _log(session: Session, supervisor: Supervisor, queued_events: SimpleQueue[Event], level: int, *, plain: bool) -> Callable[[], None]:
    """Return a function that prints events at once, and changed figures every `FIGURES_INTERVAL_S` seconds; `plain`: without colours."""
    last: dict[str, QueueSnapshot] = {}
    due = time.monotonic() + FIGURES_INTERVAL_S

    def draw() -> None:
        nonlocal due
        _drain(queued_events, level, lambda event: session.out.print(_line(event, plain=plain), soft_wrap=True, highlight=not plain))
        if time.monotonic() < due:
            return
        due = time.monotonic() + FIGURES_INTERVAL_S
        for queue in supervisor.snapshot().queues:
            if last.get(queue.queue) != queue:
                session.out.print(f"{datetime.now():%H:%M:%S} {visible(describe_figures(queue))}", soft_wrap=True, highlight=not plain)
            last[queue.queue] = queue

    return draw


def _print_totals(session: Session, queues: tuple[QueueSnapshot, ...], *, plain: bool) -> None:
    """Print what was done. Nothing is said of waiting messages: the last peek was before the last handlers committed."""
    for queue in queues:
        if _as_json(session):
            counts = ("handled", "failed", "moved_to_error", "poison", "expired", "died")
            session.document({"event": "Totals", "queue": queue.queue} | {key: getattr(queue, key) for key in counts})
        else:
            session.out.print(visible(describe_figures(replace(queue, depth=None))), soft_wrap=True, highlight=not plain)


class Supervised(Protocol):
    """What runs in a thread of its own until it is stopped: a supervisor or a bridge."""

    def run(self, until: Callable[[Any], bool] | None = None) -> None:
        """Work until `stop` is called, or until `until` returns True for a snapshot."""

    def stop(self) -> None:
        """Let what is running finish; the second call does not wait for it."""


def supervise(
    supervisor: Supervised,
    draw: Callable[[], None],
    every: float,
    until: Callable[[Any], bool] | None = None,
    on_hangup: Callable[[], None] | None = None,
) -> signal.Signals | None:
    """Run a supervisor or a bridge in a thread until it ends. Call `draw` every `every` seconds and once after the end.

    The first SIGINT or SIGTERM lets running handlers finish, the second one kills them. SIGHUP calls `on_hangup`. If `draw` raises, the
    supervisor is stopped first. Raises what the supervisor raises.

    Returns:
        The signal that ended the supervisor, or None if it ended by itself.
    """
    received: list[int] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            supervisor.run(until)
        except BaseException as error:  # noqa: BLE001 -- raised again in the main thread
            failed.append(error)

    def pass_on(number: int, frame: FrameType | None) -> None:
        received.append(number)
        hurry()
        supervisor.stop()

    thread = threading.Thread(target=work, name="rowpost supervisor")
    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    if on_hangup is not None and hasattr(signal, "SIGHUP"):
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: on_hangup())
        hangups.take_over(on_hangup)
    try:
        thread.start()
        try:
            while thread.is_alive():
                draw()
                thread.join(every)
        except BaseException:
            supervisor.stop()
            raise
        finally:
            thread.join()
        draw()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if failed:
        raise failed[0]
    return signal.Signals(received[0]) if received else None
