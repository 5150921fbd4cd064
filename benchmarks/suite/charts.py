"""Draw the charts from the data file: one for each workload and one of all targets, as SVG and PNG.

Bars start at zero. The line on a bar spans its rounds, from the lowest to the highest. The guarantees of a line are below
its name.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from benchmarks.suite.report import shown

__all__ = ["draw", "draw_targets"]

OURS, ALSO_OURS, THEIRS, MISSED = "#1f5fa8", "#7fa8d8", "#9a9a9a", "#c8553d"
INK, FAINT = "#222222", "#6a6a6a"
WIDTH = 10.0  # inches
ROW = 0.46  # height of a bar in inches
LABEL = 66  # characters in one line of guarantees
STYLE = {
    "font.family": "DejaVu Sans", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
    "axes.edgecolor": FAINT, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "svg.hashsalt": "rowpost", "svg.fonttype": "none",
}  # fmt: skip
Lines = list[dict[str, Any]]


def draw(folder: Path, name: str, section: dict[str, Any]) -> None:
    """Draw the chart of one workload to NAME.svg and NAME.png."""
    if not any(line["rounds"] for line in section["lines"]):
        return
    with plt.rc_context(STYLE):
        _save(SPECIAL.get(name, bars)(section), folder, name, _about(section))


def draw_targets(folder: Path, sections: dict[str, Any]) -> None:
    """Draw each figure of "What it must show" as a share of its target. A bar that reaches the line has reached its target."""
    targets = [target for each in sections.values() for target in each["targets"] if target["figure"] is not None]
    if not targets:
        return
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(WIDTH, 1.2 + 0.3 * len(targets)), layout="constrained")
        for place, each in enumerate(targets):
            ratio = each["figure"] / each["wanted"]
            share = 1 / max(ratio, 1e-9) if each["at_most"] else ratio
            axes.barh(place, min(share, 3.0), color=OURS if each["reached"] else MISSED, height=0.62)
            wanted = f"{shown(each['figure'])} ({'at most' if each['at_most'] else 'at least'} {shown(each['wanted'])} {each['unit']})"
            axes.text(
                min(share, 3.0) + 0.03,
                place,
                wanted,
                va="center",
                fontsize=7.5,
                color=INK,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
            )
        axes.set_yticks(range(len(targets)), [textwrap.shorten(each["claim"], 74) for each in targets], fontsize=8)
        axes.axvline(1.0, color=INK, linewidth=1)
        axes.set(
            xlim=(0, 4.0),
            xlabel="share of the target; longer is better, bars end at 3",
            ylim=(len(targets) - 0.4, -0.6),
        )
        axes.set_xticks([0, 1, 2, 3], ["0", "target", "2 times", "3 times"])
        figure.suptitle("What it must show", x=0.01, ha="left", fontweight="bold")
        _save(figure, folder, "targets", "")


def _save(figure: Figure, folder: Path, name: str, about: str) -> None:
    if about:
        figure.supxlabel(about, fontsize=7, color=FAINT, x=0.01, ha="left")
    for kind, options in {"svg": {"metadata": {"Date": None}}, "png": {"dpi": 110}}.items():
        figure.savefig(folder / f"{name}.{kind}", **options)
    plt.close(figure)


def _about(section: dict[str, Any]) -> str:
    about = section["about"]
    return (
        f"Medians of {about['rounds']} alternating rounds on one server, durable commits; marks span the rounds. "
        f"PostgreSQL {about['postgresql']}, {about['cores']} cores, {about['begun'][:10]}."
    )


def _cases(lines: Lines) -> dict[str, Lines]:
    found: dict[str, Lines] = {}
    for line in lines:
        found.setdefault(line["case"], []).append(line)
    return found


def _color(name: str) -> str:
    if name == "rowpost":
        return OURS
    return ALSO_OURS if name.startswith(("rowpost", "beside", "worker", "purge")) else THEIRS


# ------------------------------------------------------------------ bars, a panel for each case
def bars(section: dict[str, Any]) -> Figure:
    """Draw a panel for each case, with a bar for each line."""
    cases = _cases(section["lines"])
    heights = [0.5 + ROW * len(lines) for lines in cases.values()]
    figure, panels = plt.subplots(
        len(cases), figsize=(WIDTH, sum(heights) + 0.7), height_ratios=heights, layout="constrained", squeeze=False
    )
    for axes, (case, lines) in zip(panels[:, 0], cases.items(), strict=True):
        _bar_panel(axes, case, lines)
    figure.suptitle(section["title"], x=0.01, ha="left", fontweight="bold", fontsize=12)
    return figure


def _bar_panel(axes: Axes, case: str, lines: Lines) -> None:
    tails = [line["more"].get("p99") for line in lines]
    widest = max(
        [max(line["rounds"]) for line in lines if line["rounds"]] + [tail for tail in tails if tail], default=1.0
    )
    for place, (line, tail) in enumerate(zip(lines, tails, strict=True)):
        if not line["rounds"]:
            axes.text(
                widest * 0.01,
                place,
                textwrap.shorten(f"no figure: {line['error']}", 90),
                va="center",
                fontsize=7,
                color=MISSED,
            )
        else:
            axes.barh(place, line["figure"], color=_color(line["name"]), height=0.55)
            axes.plot([min(line["rounds"]), max(line["rounds"])], [place, place], color=INK, linewidth=1, alpha=0.7)
            if tail:
                axes.plot(tail, place, marker="D", color=INK, markersize=4)
            end = max(line["figure"], *line["rounds"], tail or 0)
            text = shown(line["figure"]) + (f", p99 {shown(tail)}" if tail else "")
            axes.text(end + widest * 0.01, place, text, va="center", fontsize=8, color=INK)
        _named(axes, place, line)
    unit = lines[0]["unit"]
    axes.set(
        title=f"{case}, {unit}" + (" (diamond: p99)" if any(tails) else ""),
        xlim=(0, widest * 1.18),
        ylim=(len(lines) - 0.45, -0.55),
        yticks=[],
    )
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _named(axes: Axes, place: float, line: dict[str, Any]) -> None:
    """Write the line's name to the left of its bar, with its guarantees below."""
    does = textwrap.wrap(line["does"], LABEL)[:3]
    here = {
        "xycoords": ("axes fraction", "data"),
        "textcoords": "offset points",
        "ha": "right",
        "annotation_clip": False,
    }
    axes.annotate(line["name"], (0, place), xytext=(-6, 6 if does else 0), va="center", fontsize=8.5, color=INK, **here)
    if does:
        axes.annotate(
            "\n".join(does), (0, place), xytext=(-6, 1), va="top", fontsize=6, color=FAINT, linespacing=1.0, **here
        )


# ------------------------------------------------------------------ curves, for workloads whose cases are ordered
def _curves(
    axes: Axes, series: dict[str, tuple[Sequence[float], Sequence[float], str]], title: str, ticks: Sequence[float]
) -> None:
    """Draw several curves over a logarithmic x axis. The y axis starts at zero."""
    for name, (x, y, color) in series.items():
        axes.plot(x, y, marker="o", markersize=4, color=color, label=name, linestyle="--" if color == THEIRS else "-")
    top = max(max(y) for _, y, _ in series.values())
    axes.set(title=title, ylim=(0, top * 1.12), xscale="log")
    axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks], minor=False)
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.legend(fontsize=7, frameon=False, loc="best")


def depth(section: dict[str, Any]) -> Figure:
    """Draw messages per second over the depth, compared with a queue of a thousand messages."""
    figure, panels = plt.subplots(1, 2, figsize=(WIDTH, 3.8), layout="constrained")
    cases = _cases(section["lines"])
    depths = list(dict.fromkeys(int(case.split()[0].replace(",", "")) for case in cases))
    for axes, batch in zip(panels, ("1", "100"), strict=True):
        series = {}
        for name, color in (("rowpost", OURS), ("beside it: 1,000", THEIRS)):
            points = [
                (int(case.split()[0].replace(",", "")), line["figure"])
                for case, lines in cases.items() for line in lines
                if case.endswith(f", {batch} a call") and line["name"] == name and line["rounds"]
            ]  # fmt: skip
            if points:
                label = "the deep queue" if color == OURS else "a queue of 1,000 messages, same rounds"
                series[label] = (*zip(*points, strict=True), color)
        _curves(axes, series, f"receive {batch} a call, messages/s", depths)
        axes.set_xlabel("messages in the queue")
    figure.suptitle(f"{section['title']}\n", x=0.01, ha="left", fontweight="bold", fontsize=12)
    return figure


def scaling(section: dict[str, Any]) -> Figure:
    """Draw throughput, processor time and p99 over the workers, the first two relative to one worker (or one instance)."""
    figure, panels = plt.subplots(1, 3, figsize=(WIDTH * 1.15, 4.2), layout="constrained")
    cases = {case: [line for line in lines if line["rounds"]] for case, lines in _cases(section["lines"]).items()}
    colors = {"one by one": OURS, "adaptive": ALSO_OURS, "published": THEIRS}
    what: dict[str, tuple[Callable[[dict], float], bool]] = {  # the flag: whether it is shown relative to one worker
        "messages/s, one worker's = 1": (lambda line: line["figure"], True),
        "database CPU a message, one's = 1": (lambda line: line["more"]["database CPU µs"], True),
        "p99, ms": (lambda line: line["more"]["p99 ms"], False),
    }
    for axes, (title, (value, relative)) in zip(panels, what.items(), strict=True):
        series = {}
        for case, lines in cases.items():
            if lines:
                numbers = [int(line["name"].rpartition(", ")[2].split()[0]) for line in lines]
                label = "NServiceBus.SqlServer, from its issue #1784" if case == "published" else f"rowpost, {case}"
                series[label] = (
                    numbers,
                    [value(line) / (value(lines[0]) if relative else 1) for line in lines],
                    colors[case],
                )
        _curves(axes, series, title, (1, 2, 4, 8, 16))
        axes.set_xlabel("workers (instances)")
    figure.suptitle(f"{section['title']}\n", x=0.01, ha="left", fontweight="bold", fontsize=12)
    return figure


def bodies(section: dict[str, Any]) -> Figure:
    """Draw megabytes per second over the size of a body."""
    figure, panels = plt.subplots(1, 2, figsize=(WIDTH, 3.8), layout="constrained", sharey=True)
    cases = _cases(section["lines"])
    for axes, verb in zip(panels, ("send", "receive"), strict=True):
        sizes = [case.removeprefix(f"{verb} ") for case in cases if case.startswith(f"{verb} ")]
        for shift, (name, color) in enumerate((("rowpost", OURS), ("pgmq", THEIRS))):
            lines = [next((line for line in cases[f"{verb} {size}"] if line["name"] == name), None) for size in sizes]
            rates = [line["more"]["MB/s"] if line and line["rounds"] else 0 for line in lines]
            label = name if name == "rowpost" else f"{name}, as JSON"
            places = axes.bar(
                [place + 0.4 * shift for place in range(len(sizes))], rates, 0.38, color=color, label=label
            )
            axes.bar_label(places, [shown(rate) for rate in rates], fontsize=7)
        axes.set(title=f"{verb} one by one, MB/s", ylim=(0, None))
        axes.set_xticks([place + 0.2 for place in range(len(sizes))], sizes)
        axes.legend(fontsize=8, frameon=False)
    figure.suptitle(f"{section['title']}\n", x=0.01, ha="left", fontweight="bold", fontsize=12)
    return figure


SPECIAL = {"bodies": bodies, "depth": depth, "scaling": scaling}
