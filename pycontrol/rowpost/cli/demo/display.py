"""Show the demo: a live display on a terminal, one line per second elsewhere, and a summary at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from rich.console import Console, Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rowpost.cli.demo.progress import DemoProgress
from rowpost.cli.demo.scenario import DemoResult, Scenario
from rowpost.cli.printing import visible
from rowpost.cli.run.live_table import QueueTable, show_depth
from rowpost.workers.snapshot import Snapshot

__all__ = ["chart_lines", "line", "picture", "print_summary", "resample"]

EIGHTHS = " ▁▂▃▄▅▆▇█"
CHART_WIDTH, HIGHEST_CHART = 64, 8


def picture(
    title: str, progress: DemoProgress, snapshot: Snapshot, depths: Mapping[str, int | None], limit: int
) -> Group:
    """Make one frame of the live display."""
    burst = progress.burst
    handled = sum(queue.handled for queue in snapshot.queues)
    bars = Table.grid(padding=(0, 2))
    for name, value in (("orders sent", burst.sent), ("handled", min(handled, burst.orders))):
        bars.add_row(name, ProgressBar(total=burst.orders, completed=value, width=40), f"{value:,} of {burst.orders:,}")
    recent = (
        Text(visible(" ".join(text.split())), style="yellow", overflow="ellipsis", no_wrap=True)
        for text in progress.recent
    )
    return Group(
        Text(f"{title} · {progress.seconds:.0f} s", style="dim"),
        QueueTable(snapshot, depths),
        bars,
        Text(""),
        _chart(progress, limit),
        *recent,
    )


def line(progress: DemoProgress, snapshot: Snapshot, queue: str, depth: int | None) -> str:
    """Format the current state in one line, for output that is not a terminal."""
    figures = snapshot.queue(queue)
    moved = sum(each.moved_to_error + each.poison for each in snapshot.queues)
    return (
        f"{progress.seconds:5.1f} s  sent {progress.burst.sent:>6,}  waiting {show_depth(depth).plain:>7}  "
        f"workers {figures.workers}/{figures.limit}  handled {figures.handled:>6,}  {figures.rate:>6,.0f}/s  "
        f"failed attempts {sum(each.attempts_failed for each in snapshot.queues)}  moved to error {moved}"
    )


def print_summary(
    out: Console, scenario: Scenario, result: DemoResult, reasons: Sequence[str], progress: DemoProgress, limit: int
) -> None:
    """Print how many messages were sent, what happened to them, and the throughput."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(justify="right")
    for number, text in (
        (scenario.sent, "messages sent: the burst, 6 sample messages of NServiceBus, 5 rows of another system"),
        (result.handled, f"handled, {result.exactly_once('each exactly once')} (rows in the table demo_order)"),
        (result.expired, "expired and dropped"),
        (result.in_audit, "in Demo.audit"),
        (result.waiting, "still waiting"),
        (result.in_error, "in Demo.error:"),
    ):
        facts.add_row(f"{number:,}", text)
    for reason in reasons:
        facts.add_row("", Text(visible(" ".join(reason.split())), style="yellow"))
    rate = result.burst_handled / progress.burst_seconds
    out.print(facts)
    out.print(
        f"\n{progress.burst_seconds:.1f} s for the burst: {rate:,.0f} messages per second, in batches while a backlog "
        "waits\n"
    )
    out.print(_chart(progress, limit))
    missed = scenario.differences(result)
    for text in missed:
        out.print(Text(f"WRONG: {text}", style="bold red"))
    if not missed:
        out.print(Text("Nothing lost, nothing doubled.", style="bold green"))


def _chart(progress: DemoProgress, limit: int) -> Group:
    """Draw the number of workers over time, with a scale."""
    height = min(limit, HIGHEST_CHART)
    lines = chart_lines(progress.workers, CHART_WIDTH, height, limit)
    scale = [f"{limit * (height - row) / height:>4.0f} │" for row in range(height)]
    return Group(
        Text("workers over time", style="dim"),
        *(Text.assemble((number, "dim"), (text, "cyan")) for number, text in zip(scale, lines, strict=True)),
        Text(f"   0 └{'─' * len(lines[0])} {progress.seconds:.0f} s", style="dim"),
    )


def resample(values: Sequence[float], width: int) -> list[float]:
    """Reduce values to at most `width`. Each result is the maximum of an equal span.

    >>> resample([1, 2, 3, 4, 4, 1], 3)
    [2, 4, 4]
    """
    if len(values) <= width:
        return list(values)
    edges = [len(values) * column // width for column in range(width + 1)]
    return [max(values[start:end]) for start, end in pairwise(edges)]


def chart_lines(values: Sequence[float], width: int, height: int, top: float) -> list[str]:
    """Draw a chart with block characters, and return its lines from top to bottom.

    `top` is the value at the upper edge.

    >>> for line in chart_lines([0, 1, 2, 2], width=4, height=2, top=2):
    ...     print(line)
      ██
     ███
    """
    columns = [round(value / top * height * 8) if top else 0 for value in resample(values, width)]
    return ["".join(EIGHTHS[max(0, min(8, level - 8 * row))] for level in columns) for row in reversed(range(height))]
