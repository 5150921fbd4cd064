"""Run the demo: deploy, send, handle, count, and compare the counts with the expected result."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from rich.live import Live

from rowpost.cli.demo.display import line, picture, print_summary, resample
from rowpost.cli.demo.progress import Burst, DemoProgress
from rowpost.cli.demo.scenario import BILLING, SALES, DemoResult, Scenario
from rowpost.cli.demo.stage import Stage
from rowpost.cli.exits import CommandInterrupted, ExitCode
from rowpost.cli.run.depths import watched_depths
from rowpost.cli.run.supervise import supervise
from rowpost.cli.session import Session
from rowpost.errors import DatabaseError
from rowpost.workers.snapshot import Snapshot
from rowpost.workers.supervision.supervisor import Supervisor

__all__ = ["show"]

#: between two updates of the display, and between two lines if the output is not a terminal
DRAW_INTERVAL_S, LINE_INTERVAL_S = 0.1, 1.0
#: the burst starts after this time even if the queues are not empty
BURST_AFTER_S = 10.0
CHART_POINTS = 120


def show(session: Session, orders: int, workers: int, keep: bool) -> ExitCode:
    """Run the demo. Returns OK only if all counts are as expected."""
    scenario, stage = Scenario(orders), Stage(session.settings, workers)
    billing = stage.names[BILLING]
    session.note(f"Deploying the demo to {session.settings.target} ...")
    with session.connected() as database:
        stage.set(database)
    progress = DemoProgress(Burst(session.environment, billing, orders), (billing, stage.names[SALES]))
    supervisor = Supervisor(stage.settings, on_event=progress.record)
    with (
        watched_depths(stage.settings, stage.names.values(), every=0.5) as depths,
        _display(session, progress, depths, billing, workers) as paint,
    ):

        def draw() -> None:
            if not progress.burst.started and (progress.quiet or progress.seconds > BURST_AFTER_S):
                progress.start_burst()
            progress.sample(supervisor.snapshot(), billing)
            paint(supervisor.snapshot())

        try:
            stopped_by = supervise(supervisor, draw, progress.over, every=DRAW_INTERVAL_S)
        finally:
            progress.burst.stop()
    expired = sum(queue.expired for queue in supervisor.snapshot().queues)
    with session.connected() as database:
        result, errors = stage.count(database, expired), stage.errors(database)
        if not keep:
            stage.clear(database)
    if stopped_by is not None:
        raise CommandInterrupted(_interim(result, keep))
    if progress.burst.failure:
        raise DatabaseError(f"The demo's second process failed to send the orders: {progress.burst.failure}")
    if session.as_json:
        session.document(_document(scenario, result, errors, progress))
    else:
        print_summary(session.out, scenario, result, [each["reason"] for each in errors], progress, workers)
    if keep and not session.as_json:
        program = "rowpost" if shutil.which("rowpost") else os.path.relpath(sys.argv[0])
        session.note(f"\nInspect the result:  {program} queue list    {program} queue browse Demo.error --full")
    return ExitCode.FAILED if scenario.differences(result) else ExitCode.OK


@contextmanager
def _display(
    session: Session, progress: DemoProgress, depths: Mapping[str, int | None], billing: str, workers: int
) -> Iterator[Callable[[Snapshot], None]]:
    """Yield the function that shows the current state: a frame on a terminal, a line elsewhere."""
    if session.out.is_terminal and not session.as_json:
        with Live(console=session.out, auto_refresh=False, transient=True) as live:
            title = f"rowpost demo · {session.settings.target}"
            yield lambda snapshot: live.update(picture(title, progress, snapshot, depths, workers), refresh=True)
        return
    console = session.err if session.as_json else session.out
    due = time.monotonic() + LINE_INTERVAL_S

    def print_line(snapshot: Snapshot) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due += LINE_INTERVAL_S
            console.print(line(progress, snapshot, billing, depths[billing]), soft_wrap=True)

    yield print_line


def _document(
    scenario: Scenario, result: DemoResult, errors: Sequence[dict[str, str]], progress: DemoProgress
) -> dict[str, object]:
    return {
        "correct": not scenario.differences(result),
        "sent": scenario.sent,
        **asdict(result),
        "expected": asdict(scenario.expected),
        "errors": errors,
        "seconds": round(progress.burst_seconds, 3),
        "rate": round(result.burst_handled / progress.burst_seconds, 1),
        "workers": resample(progress.workers, CHART_POINTS),
    }


def _interim(result: DemoResult, keep: bool) -> str:
    rest = "waiting messages stay in Demo.Billing until the next demo" if keep else "the demo's queues were deleted"
    return (
        f"{result.handled:,} messages were handled, {result.exactly_once('each once')}, {result.waiting:,} are "
        f"waiting; {rest}"
    )
