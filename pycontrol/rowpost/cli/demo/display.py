"""Show the demo: a live display on a terminal, one line per second elsewhere, and a summary at the end."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console, Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rowpost.cli.demo.chart import draw_chart
from rowpost.cli.demo.progress import Progress
from rowpost.cli.demo.scenario import Outcome, Scenario
from rowpost.cli.printing import visible
from rowpost.cli.run.live_table import queue_table, show_depth
from rowpost.workers.snapshot import Snapshot

__all__ = ["chart_of_workers", "line", "picture", "print_summary"]

CHART_WIDTH = 64
HIGHEST_CHART = 8


def picture(title: str, progress: Progress, snapshot: Snapshot, depths: Mapping[str, int | None], limit: int) -> Group:
    """Make one frame of the live display."""
    burst = progress.burst
    handled = sum(queue.handled for queue in snapshot.queues)
    bars = Table.grid(padding=(0, 2))
    for name, value in (("orders sent", burst.sent), ("handled", min(handled, burst.orders))):
        bars.add_row(name, ProgressBar(total=burst.orders, completed=value, width=40), f"{value:,} of {burst.orders:,}")
    recent = [Text(visible(" ".join(text.split())), style="yellow", overflow="ellipsis", no_wrap=True) for text in progress.recent]
    return Group(
        Text(f"{title} · {progress.seconds:.0f} s", style="dim"),
        queue_table(snapshot, depths),
        bars,
        Text(""),
        *chart_of_workers(progress, limit),
        *recent,
    )


def line(progress: Progress, snapshot: Snapshot, queue: str, depth: int | None) -> str:
    """Format the current state in one line, for output that is not a terminal."""
    figures = snapshot.queue(queue)
    moved = sum(each.moved_to_error + each.poison for each in snapshot.queues)
    return (
        f"{progress.seconds:5.1f} s  sent {progress.burst.sent:>6,}  waiting {show_depth(depth).plain:>7}  "
        f"workers {figures.workers}/{figures.limit}  handled {figures.handled:>6,}  {figures.rate:>6,.0f}/s  "
        f"failed attempts {sum(each.attempts_failed for each in snapshot.queues)}  moved to error {moved}"
    )


def chart_of_workers(progress: Progress, limit: int) -> list[Text]:
    """Draw the number of workers over time, with a scale."""
    height = min(limit, HIGHEST_CHART)
    lines = draw_chart(progress.workers, CHART_WIDTH, height, limit)
    shown = [Text("workers over time", style="dim")]
    for row, text in enumerate(lines):
        scale = f"{limit * (height - row) / height:>4.0f} │"
        shown.append(Text.assemble((scale, "dim"), (text, "cyan")))
    width = max(len(text) for text in lines)
    shown.append(Text(f"   0 └{'─' * width} {progress.seconds:.0f} s", style="dim"))
    return shown


def print_summary(out: Console, scenario: Scenario, outcome: Outcome, reasons: list[tuple[str, str]], progress: Progress, limit: int) -> None:
    """Print how many messages were sent, what happened to them, and the throughput."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(justify="right")
    for number, text in (
        (scenario.sent, "messages sent: the burst, 6 sample messages of NServiceBus, 5 rows of another system"),
        (outcome.handled, f"handled, {_exactly_once(outcome)} (rows in the table demo_order)"),
        (outcome.expired, "expired and dropped"),
        (outcome.in_audit, "in Demo.audit"),
        (outcome.waiting, "still waiting"),
        (outcome.in_error, "in Demo.error:"),
        *((None, visible(" ".join(reason.split()))) for _, reason in reasons),
    ):
        facts.add_row("" if number is None else f"{number:,}", Text(text, style="yellow" if number is None else ""))
    out.print(facts)
    seconds = progress.burst_seconds
    rate = outcome.burst_handled / seconds
    out.print(f"\n{seconds:.1f} s for the burst: {rate:,.0f} messages per second, in batches while a backlog waits\n")
    for chart_line in chart_of_workers(progress, limit):
        out.print(chart_line)
    missed = scenario.differences(outcome)
    for text in missed:
        out.print(Text(f"WRONG: {text}", style="bold red"))
    if not missed:
        out.print(Text("Nothing lost, nothing doubled.", style="bold green"))


def _exactly_once(outcome: Outcome) -> str:
    doubled = outcome.handled - outcome.handled_once
    return "each exactly once" if not doubled else f"{doubled:,} of them more than once"
