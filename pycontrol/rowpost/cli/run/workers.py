"""Run the workers of an environment, and display their queues and events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from queue import SimpleQueue
from signal import Signals

from rich.console import Group
from rich.live import Live
from rich.text import Text

from rowpost.cli.current_folder import import_from_current_folder
from rowpost.cli.exits import CommandInterrupted, ExitCode, Refused
from rowpost.cli.printing import visible
from rowpost.cli.run.depths import watched_depths
from rowpost.cli.run.event_text import print_event
from rowpost.cli.run.live_table import QueueTable, describe_figures
from rowpost.cli.run.output import patient
from rowpost.cli.run.supervise import pending, supervise
from rowpost.cli.session import PRODUCTION, Session
from rowpost.database.requirements import check_connections
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.endpoint.hosting import (
    check_leases,
    check_outboxes,
    check_sagas,
    needed_queues,
    subscribe_all,
    with_instances,
    with_needs,
    with_sagas,
)
from rowpost.endpoint.schedules import check_schedules, with_schedules
from rowpost.errors import DatabaseUnavailable, QueueNotFound
from rowpost.operations.figures import registered_queues
from rowpost.settings.environment import Settings
from rowpost.workers.events import Event
from rowpost.workers.snapshot import QueueSnapshot
from rowpost.workers.supervision.supervisor import Supervisor

__all__ = ["work"]

#: an installation knows the endpoints of this run alone, so it removes no schedule of another one
OTHERS = (("schedules", "an endpoint that this run does not have"),)
#: between two lines of figures if the output is not a terminal
FIGURES_INTERVAL_S = 10.0


def work(
    session: Session,
    load: Callable[[Session], Settings],
    until_idle: bool,
    *,
    install: bool = False,
    plain: bool = False,
) -> None:
    """Run the given endpoints, or the environment's workers, until a signal arrives or all queues are idle.

    Args:
        session: the call of the program.
        load: reads the environment with the workers that the command line selects.
        until_idle: stop when no messages are waiting.
        install: first deploy what the workers need and the databases do not have.
        plain: write lines on a terminal too.

    Raises:
        Refused: `install` in an environment named production.
        SettingsError: a named queue has no worker, or metrics cannot be served.
        QueueNotFound: a needed queue is not deployed.
        HandlerNotFound: a handler cannot be imported.
        CommandInterrupted: Ctrl-C was pressed.
    """
    import_from_current_folder()
    settings = with_schedules(with_instances(load(session)))
    if install:
        _install(session, settings)
    queued: SimpleQueue[Event] = SimpleQueue()
    supervisor = Supervisor(
        settings,
        on_event=queued.put,
        # the supervisor imports no module that is new: it would have to live with it
        load=lambda: with_schedules(
            with_instances(load(Session(session.environment, session.as_json)), imported=True), imported=True
        ),
    )
    _prepare(session, settings)
    as_json, live = _as_json(session), not plain and session.out.is_terminal and not session.out.is_dumb_terminal
    with patient(session, as_json=as_json):
        with _figures(session, settings, supervisor, live=live, plain=plain) as show_figures:

            def draw() -> None:
                for event in pending(queued, settings.log.number):
                    if not event.frequent:
                        print_event(session, event, as_json=as_json, plain=plain, fold=live)
                show_figures()

            until = (lambda snapshot: snapshot.idle) if until_idle else None
            stopped_by = supervise(supervisor, draw, until, on_hangup=supervisor.reload)
        _print_totals(session, supervisor.snapshot().queues, plain=plain)
    if stopped_by is Signals.SIGINT:
        raise CommandInterrupted("running handlers finished; waiting messages stay in their queues")


def _install(session: Session, settings: Settings) -> None:
    """Deploy what the workers need, also into the business databases of outboxes. Raises Refused."""
    if settings.environment == PRODUCTION:
        raise Refused(
            "run --install is for development. In production, review rowpost plan, and run rowpost apply.",
            ExitCode.USAGE,
        )
    main, *business = session.databases()
    needs = with_needs(settings)
    others = ((each, replace(each.settings, sagas=needs.sagas)) for each in business)
    for each, wanted in ((main, needs), *others):
        with each.connected() as database:
            made = apply(database, replace(plan(wanted), uncertain=OTHERS)).applied
        if made:
            session.note(
                f"Installed in {wanted.target}: {len(made)} objects, for "
                f"{', '.join(queue.name for queue in wanted.queues) or 'the outbox'}."
            )


def _prepare(session: Session, settings: Settings) -> None:
    """Check queues, sagas and outboxes, and subscribe the endpoints, before any worker starts.

    Raises QueueNotFound, SagaNotDeployed, ScheduleNotFound, FeatureMissing, SchemaMissing, SchemaTooNew and
    SettingsError.
    """
    has_outbox = check_outboxes(settings)
    with session.deployed() as database:
        if has_outbox:
            database.call("outbox_status")  # raises FeatureMissing
        registered = {row.queue_name for row in registered_queues(database)}
        for name in needed_queues(settings):
            if name not in registered:
                declare = (
                    ""
                    if session.settings.queue(name)
                    else f"Add `{name}: {{}}` to the queues of the environment {settings.environment!r}. "
                )
                raise QueueNotFound(
                    f"The queue {name!r} is not deployed in {settings.target}. {declare}Run: rowpost apply. "
                    "In development, rowpost run --install creates what is missing."
                )
        settings = with_sagas(settings)
        check_sagas(settings, database)
        check_schedules(settings, database)
        check_leases(settings, database)
        for each in session.databases()[1:]:
            _check_business(each, replace(each.settings, sagas=settings.sagas))
        subscribe_all(settings, database)
        for text in database.dialect.encoding_limits(database.driver_connection):
            session.note(text)
        with database.translated():
            for text in database.dialect.session_limits(database.driver_connection):
                session.note(f"The server limits how long handlers may work. {text}")
            connections = check_connections(settings, database.dialect.connection_limit(database.driver_connection))
        if connections.state != "ok":
            session.note(f"The server may have too few connections: {connections.found}. {connections.advice}.")


def _check_business(session: Session, settings: Settings) -> None:
    """Check the sagas of a business database. If it is down, the workers wait for it. Raises SagaNotDeployed."""
    if settings.own_sagas:
        try:
            with session.connected() as business:
                check_sagas(settings, business)
        except DatabaseUnavailable as error:
            session.note(f"The tables of sagas were not checked: {error}")


@contextmanager
def _figures(
    session: Session, settings: Settings, supervisor: Supervisor, *, live: bool, plain: bool
) -> Iterator[Callable[[], None]]:
    """Yield the function that shows the figures of the queues: in a live table on a terminal, in lines elsewhere, and
    never with JSON.
    """
    if _as_json(session):
        yield lambda: None
    elif not live:
        yield _lines_of_figures(session, supervisor, plain=plain)
    else:
        title = Text(
            f"rowpost run · {visible(settings.environment)} · {visible(settings.target)} · Ctrl-C stops", "dim"
        )
        counted = [*(each.name for each in settings.queues if each.worker is not None), settings.supervisor.error_queue]
        with watched_depths(settings, counted) as depths, Live(console=session.out, auto_refresh=False) as display:
            yield lambda: display.update(Group(title, QueueTable(supervisor.snapshot(), depths)), refresh=True)


def _lines_of_figures(session: Session, supervisor: Supervisor, *, plain: bool) -> Callable[[], None]:
    """Return a function that prints the figures that have changed, every `FIGURES_INTERVAL_S` seconds; `plain`: without
    colours.
    """
    last: dict[str, QueueSnapshot] = {}
    due = time.monotonic() + FIGURES_INTERVAL_S

    def show() -> None:
        nonlocal due
        if time.monotonic() < due:
            return
        due = time.monotonic() + FIGURES_INTERVAL_S
        for queue in supervisor.snapshot().queues:
            if last.get(queue.queue) != queue:
                session.out.print(
                    f"{datetime.now():%H:%M:%S} {visible(describe_figures(queue))}", soft_wrap=True, highlight=not plain
                )
            last[queue.queue] = queue

    return show


def _as_json(session: Session) -> bool:
    return session.as_json or session.settings.log.format == "json"


def _print_totals(session: Session, queues: tuple[QueueSnapshot, ...], *, plain: bool) -> None:
    """Print what was done.

    Nothing is said of waiting messages: the last peek was before the last handlers committed.
    """
    for queue in queues:
        if _as_json(session):
            counts = ("handled", "failed", "moved_to_error", "poison", "expired", "died")
            session.document({"event": "Totals", "queue": queue.queue} | {key: getattr(queue, key) for key in counts})
        else:
            session.out.print(
                visible(describe_figures(replace(queue, depth=None))), soft_wrap=True, highlight=not plain
            )
