"""The live table of a supervisor's queues."""

from __future__ import annotations

from collections.abc import Mapping

from rich import box
from rich.table import Table
from rich.text import Text

from rowpost.cli.formats import format_seconds
from rowpost.cli.printing import visible
from rowpost.cli.run.depths import COUNT_LIMIT
from rowpost.workers.snapshot import QueueSnapshot, Snapshot

__all__ = ["queue_table", "show_depth"]

_COLUMNS = ("queue", "waiting", "workers", "per second", "critical time", "handled", "failed", "to error", "discarded")
_BARS = 8


def queue_table(snapshot: Snapshot, depths: Mapping[str, int | None]) -> Table:
    """Make the table: queues with workers first, then queues of which only the depth is known."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in _COLUMNS:
        shown.add_column(column, justify="left" if column in ("queue", "workers") else "right", no_wrap=True)
    worked = {queue.queue for queue in snapshot.queues}
    for queue in snapshot.queues:
        shown.add_row(*_row(queue, depths.get(queue.queue)))
    for name, depth in depths.items():
        if name not in worked:
            shown.add_row(Text(visible(name)), show_depth(depth))
    return shown


def _row(queue: QueueSnapshot, depth: int | None) -> list[Text]:
    failed = Text(f"{queue.failed:,}", style="yellow" if queue.failed else "")
    moved = queue.moved_to_error + queue.poison
    return [
        Text(visible(queue.queue), style="bold red" if queue.critical else ""),
        show_depth(queue.depth if depth is None else depth),
        _workers(queue),
        Text(f"{queue.rate:,.0f}"),
        Text(format_seconds(queue.critical_time)),
        Text(f"{queue.handled:,}", style="green" if queue.handled else ""),
        failed,
        Text(f"{moved:,}", style="red" if moved else ""),
        Text(f"{queue.discarded + queue.expired:,}"),
    ]


def _workers(queue: QueueSnapshot) -> Text:
    if queue.paused:
        return Text(f"paused ({queue.workers})" if queue.workers else "paused", style="yellow")
    limit = max(queue.limit, 1)
    width = min(limit, _BARS)
    full = min(width, -(-queue.workers * width // limit))
    return Text.assemble(("■" * full, "cyan"), ("·" * (width - full), "dim"), f" {queue.workers}/{queue.limit}")


def show_depth(depth: int | None) -> Text:
    """Format a depth: a question mark if it is unknown, a plus sign if counting stopped at the limit."""
    if depth is None:
        return Text("?")
    return Text(f"{depth:,}+" if depth >= COUNT_LIMIT else f"{depth:,}")
