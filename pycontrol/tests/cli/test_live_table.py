"""The live table of `rowpost run`: whole on 80 columns, and on any other width that a terminal has."""

import doctest
import io

import pytest
from rich.console import Console

from rowpost.cli.run import live_table
from rowpost.cli.run.live_table import QueueTable, describe_figures
from rowpost.workers.snapshot import QueueSnapshot, Snapshot

FIGURES = {
    "depth": 1000, "workers": 12, "busy": 12, "limit": 16, "target": 16, "handled": 12_345_678, "failed": 123_456, "delayed": 5, "moved_to_error": 4_321,
    "expired": 9, "poison": 2, "died": 0, "rate": 12_345.6, "critical": False, "discarded": 54_321, "critical_time": 7_260.0,
}  # fmt: skip
NAMES = ("Sales", "Shop.Billing", "Shop.Warehouse.Shipping.Europe", "error")


def shown(width: int, *queues: QueueSnapshot, depths: dict[str, int | None] | None = None) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(QueueTable(Snapshot(queues), {"error": 12} if depths is None else depths))
    return console.file.getvalue().splitlines()


def queue(name: str, **figures: object) -> QueueSnapshot:
    return QueueSnapshot(**{"queue": name, **FIGURES, **figures})


@pytest.mark.parametrize("width", [80, 100, 132, 200])
def test_no_name_and_no_figure_is_cut(width):
    lines = shown(width, *(queue(name) for name in NAMES[:3]), depths={"Sales": 10_000, "error": 12})

    text = "\n".join(lines)
    assert "…" not in text
    assert max(map(len, lines)) <= width
    folded = "".join(line.strip().split(" ")[0] for line in lines)  # of a name that folds, each line has a part
    assert all(name in folded for name in NAMES)
    for word in ("queue", "waiting", "workers", "second", "critical", "handled", "failed", "error", "discarded"):
        assert word in text, word
    assert "10,000+" in text
    assert "12/16" in text
    assert "2 h 1 min" in text


def test_the_examples_of_short_numbers_hold():
    assert doctest.testmod(live_table).failed == 0


def test_large_numbers_are_short_only_where_they_do_not_fit():
    narrow, wide = ("\n".join(shown(width, queue("Sales"))) for width in (80, 200))

    assert "12.3M" in narrow
    assert "12,345,678" in wide


def test_failed_attempts_are_counted_as_the_metric_counts_them():
    figures = queue("Sales", failed=2, delayed=3, moved_to_error=1, poison=0)

    assert any("Sales" in line and " 6 " in line for line in shown(200, figures))
    assert "6 failed attempts, 1 moved to error" in describe_figures(figures)


def test_a_paused_queue_says_so_on_80_columns():
    assert any("Sales" in line and "paused" in line for line in shown(80, queue("Sales", paused=True, workers=0)))
    text = "\n".join(shown(80, queue("Sales", paused=True, workers=2)))
    assert "paused" in text
    assert "2 left" in text


def test_a_terminal_of_40_columns_still_shows_names_and_what_waits():
    text = "\n".join(shown(40, queue("Sales", depth=7)))

    assert "Sales" in text
    assert " 7" in text
