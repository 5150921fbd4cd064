"""The figures of a supervisor's queues: in a live table that is as wide as the terminal allows, and in a line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from rowpost.cli.formats import PEEK_LIMIT, format_seconds
from rowpost.cli.printing import visible
from rowpost.workers.snapshot import QueueSnapshot, Snapshot

__all__ = ["QueueTable", "describe_figures", "show_depth"]

_COLUMNS = ("queue", "waiting", "workers", "per second", "critical time", "handled", "failed", "to error", "discarded")
#: the columns that are left on a terminal that is narrower than 80 columns
_FEWEST = ("queue", "waiting", "workers", "to error")
_BARS = 8
#: a name folds into lines of at least so many characters
_NAME_WIDTH = 12
_UNLIMITED = 10_000
_THOUSAND, _MILLION, _BILLION = 1_000, 1_000_000, 1_000_000_000
#: from this number on, a narrow table shows thousands
_LONG = 100_000


@dataclass(frozen=True)
class _Layout:
    """One form of the table: its columns, and whether numbers, gaps and the column of workers are short."""

    columns: tuple[str, ...]
    short: bool


_LAYOUTS = (_Layout(_COLUMNS, short=False), _Layout(_COLUMNS, short=True), _Layout(_FEWEST, short=True))


@dataclass(frozen=True)
class QueueTable:
    """The table that rich renders: in the widest layout that fits.

    On 80 columns, numbers are short, and long names fold; on fewer, columns are left out.
    """

    snapshot: Snapshot
    depths: Mapping[str, int | None]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unlimited = options.update(width=_UNLIMITED)
        for layout in _LAYOUTS:
            least = self._table(layout, name_width=_NAME_WIDTH if layout.short else None)
            if Measurement.get(console, unlimited, least).maximum <= options.max_width:
                break
        yield self._table(layout)

    def _table(self, layout: _Layout, name_width: int | None = None) -> Table:
        """Make the table: queues with workers first, then queues of which only the depth is known."""
        shown = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, show_edge=not layout.short, padding=0 if layout.short else (0, 1)
        )
        for column in layout.columns:
            if column == "queue":
                shown.add_column(column, overflow="fold", no_wrap=not layout.short, width=name_width)
            else:
                header = column.replace(" ", "\n") if layout.short else column
                shown.add_column(header, justify="left" if column == "workers" else "right", no_wrap=True)
        for queue in self.snapshot.queues:
            cells = _cells(queue, self.depths.get(queue.queue), layout)
            shown.add_row(*(cells[column] for column in layout.columns))
        worked = {queue.queue for queue in self.snapshot.queues}
        for name, depth in self.depths.items():
            if name not in worked:
                shown.add_row(Text(visible(name)), show_depth(depth))
        return shown


def _cells(queue: QueueSnapshot, depth: int | None, layout: _Layout) -> dict[str, Text]:
    number: Callable[[int], str] = _short if layout.short else "{:,}".format
    moved = queue.moved_to_error + queue.poison
    return {
        "queue": Text(visible(queue.queue), style="bold red" if queue.critical else ""),
        "waiting": show_depth(queue.depth if depth is None else depth),
        "workers": _workers(queue, short=layout.short),
        "per second": Text(number(round(queue.rate))),
        "critical time": Text(format_seconds(queue.critical_time)),
        "handled": Text(number(queue.handled), style="green" if queue.handled else ""),
        "failed": Text(number(queue.attempts_failed), style="yellow" if queue.attempts_failed else ""),
        "to error": Text(number(moved), style="red" if moved else ""),
        "discarded": Text(number(queue.discarded + queue.expired)),
    }


def _short(number: int) -> str:
    """Format a number in at most six characters.

    >>> _short(99_999), _short(123_456), _short(12_345_678)
    ('99,999', '123k', '12.3M')
    """
    if number < _LONG:
        return f"{number:,}"
    if number < _MILLION:
        return f"{number // _THOUSAND}k"
    size, unit = (_MILLION, "M") if number < _BILLION else (_BILLION, "G")
    return f"{number / size:.1f}{unit}"


def _workers(queue: QueueSnapshot, *, short: bool) -> Text:
    if queue.paused:
        return Text(f"paused,\n{queue.workers} left" if queue.workers else "paused", style="yellow")
    if short:
        return Text(f"{queue.workers}/{queue.limit}")
    limit = max(queue.limit, 1)
    width = min(limit, _BARS)
    full = min(width, -(-queue.workers * width // limit))
    return Text.assemble(("■" * full, "cyan"), ("·" * (width - full), "dim"), f" {queue.workers}/{queue.limit}")


def show_depth(depth: int | None) -> Text:
    """Format a depth: a question mark if it is unknown, a plus sign if counting stopped at the limit."""
    if depth is None:
        return Text("?")
    return Text(f"{depth:,}+" if depth >= PEEK_LIMIT else f"{depth:,}")


def describe_figures(queue: QueueSnapshot) -> str:
    """Format a queue's figures in one line."""
    parts = (
        f"{queue.handled:,} handled",
        f"{queue.depth:,} waiting" if queue.depth else "",
        f"{queue.rate:,.0f}/s",
        f"paused, {queue.workers} workers left" if queue.paused else f"{queue.workers} of {queue.limit} workers",
        f"{queue.attempts_failed:,} failed attempts",
        f"{queue.moved_to_error + queue.poison:,} moved to error",
        f"{queue.expired:,} expired" if queue.expired else "",
        f"{queue.discarded:,} discarded" if queue.discarded else "",
        "" if queue.critical_time is None else f"critical time {format_seconds(queue.critical_time)}",
        "" if queue.processing_time is None else f"processing time {format_seconds(queue.processing_time)}",
    )
    return f"{queue.queue}: {', '.join(filter(None, parts))}"
