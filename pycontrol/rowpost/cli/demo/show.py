"""Run the demo: deploy, send, handle, count, and compare the counts with the expected result."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict

from rich.live import Live

from rowpost.cli.demo.chart import resample
from rowpost.cli.demo.display import line, picture, print_summary
from rowpost.cli.demo.progress import Burst, Progress
from rowpost.cli.demo.scenario import BILLING, SALES, Outcome, Scenario
from rowpost.cli.demo.stage import Stage
from rowpost.cli.exits import ExitCode, Interrupted
from rowpost.cli.run.depths import DepthWatch
from rowpost.cli.run.workers import supervise
from rowpost.cli.session import Session
from rowpost.errors import DatabaseError
from rowpost.workers.supervision.supervisor import Supervisor

__all__ = ["show"]

#: between two updates of the display
DRAW_INTERVAL_S = 0.1
#: between two lines if the output is not a terminal
LINE_INTERVAL_S = 1.0
#: the burst starts after this time even if the queues are not empty
BURST_AFTER_S = 10.0
CHART_POINTS = 120


def show(session: Session, orders: int, workers: int, keep: bool) -> ExitCode:
    """Run the demo. Returns OK only if all counts are as expected."""
    scenario, stage = Scenario(orders), Stage(session.settings, workers)
    session.note(f"Deploying the demo to {session.settings.target} ...")
    with session.connected() as database:
        stage.set(database)
    progress = Progress(Burst(session.environment, stage.names[BILLING], orders), (stage.names[BILLING], stage.names[SALES]))
    supervisor = Supervisor(stage.settings, on_event=progress.record)
    try:
        stopped_by = _work(session, stage, progress, supervisor, workers)
    finally:
        progress.burst.stop()
    expired = sum(queue.expired for queue in supervisor.snapshot().queues)
    with session.connected() as database:
        outcome, reasons = stage.count(database, expired), stage.reasons(database)
        if not keep:
            stage.clear(database)
    if stopped_by is not None:
        raise Interrupted(_interim(outcome, keep))
    if progress.burst.failure:
        raise DatabaseError(f"The demo's second process failed to send the orders: {progress.burst.failure}")
    _report(session, scenario, outcome, reasons, progress, workers)
    if keep and not session.as_json:
        program = "rowpost" if shutil.which("rowpost") else os.path.relpath(sys.argv[0])
        session.note(f"\nInspect the result:  {program} queue list    {program} queue browse Demo.error --full")
    return ExitCode.FAILED if scenario.differences(outcome) else ExitCode.OK


def _work(session: Session, stage: Stage, progress: Progress, supervisor: Supervisor, workers: int) -> int | None:
    """Run the supervisor until all messages are handled. Returns the signal that stopped it earlier, if any."""
    billing = stage.names[BILLING]
    with ExitStack() as stack:
        watch = stack.enter_context(DepthWatch(stage.settings, stage.names.values(), every=0.5))
        paint = _painter(session, stage, progress, supervisor, watch, workers, stack)

        def draw() -> None:
            if not progress.burst.started and (progress.quiet or progress.seconds > BURST_AFTER_S):
                progress.start_burst()
            progress.sample(supervisor.snapshot(), billing)
            paint()

        return supervise(supervisor, draw, DRAW_INTERVAL_S, progress.over)


def _painter(
    session: Session,
    stage: Stage,
    progress: Progress,
    supervisor: Supervisor,
    watch: DepthWatch,
    workers: int,
    stack: ExitStack,
) -> Callable[[], None]:
    """Return the function that shows the current state: a frame on a terminal, a line elsewhere."""
    if session.out.is_terminal and not session.as_json:
        live = stack.enter_context(Live(console=session.out, auto_refresh=False, transient=True))
        title = f"rowpost demo · {session.settings.target}"
        return lambda: live.update(picture(title, progress, supervisor.snapshot(), watch.depths, workers), refresh=True)
    console = session.err if session.as_json else session.out
    billing = stage.names[BILLING]
    due = time.monotonic() + LINE_INTERVAL_S

    def print_line() -> None:
        nonlocal due
        if time.monotonic() >= due:
            due += LINE_INTERVAL_S
            console.print(line(progress, supervisor.snapshot(), billing, watch.depths[billing]), soft_wrap=True)

    return print_line


def _report(
    session: Session,
    scenario: Scenario,
    outcome: Outcome,
    reasons: list[tuple[str, str]],
    progress: Progress,
    workers: int,
) -> None:
    if not session.as_json:
        print_summary(session.out, scenario, outcome, reasons, progress, workers)
        return
    seconds = progress.burst_seconds
    session.document(
        {
            "correct": not scenario.differences(outcome),
            "sent": scenario.sent,
            **asdict(outcome),
            "expected": asdict(scenario.expected),
            "errors": [{"id": row, "reason": reason} for row, reason in reasons],
            "seconds": round(seconds, 3),
            "rate": round(outcome.burst_handled / seconds, 1),
            "workers": resample(progress.workers, CHART_POINTS),
        }
    )


def _interim(outcome: Outcome, keep: bool) -> str:
    rest = "; waiting messages stay in Demo.Billing until the next demo" if keep else "; the demo's queues were deleted"
    return f"{outcome.handled:,} messages were handled, {_exactly(outcome)}, {outcome.waiting:,} are waiting{rest}"


def _exactly(outcome: Outcome) -> str:
    return "each once" if outcome.handled == outcome.handled_once else "SOME MORE THAN ONCE"
