"""Draw the results of the jobs metrics and failures as PNG files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rowpost.errors import SparkUnavailable
from rowpost.version import install_command

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_failures", "plot_metrics"]

MAX_ENDPOINTS, MAX_GROUPS, MAX_LABEL_LENGTH = 6, 12, 60
_REST = "all others"
_BAR_WIDTH_DAYS = 1 / 24 * 0.9
_INCHES = (10, 7)


def plot_metrics(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Plot rows of schemas.FLOW_HOURLY: messages per hour by endpoint, and the critical time of the largest endpoints."""
    figure, (above, below) = _figure(2)
    flow: dict[str, dict[datetime, int]] = defaultdict(lambda: defaultdict(int))
    critical: dict[str, dict[datetime, float]] = defaultdict(dict)
    for row in rows:
        endpoint, hour = row["endpoint"] or "(none)", row["hour"]
        if row["messages"]:
            flow[endpoint][hour] += row["messages"]
        if row["critical_ms_p95"] is not None:
            critical[endpoint][hour] = max(row["critical_ms_p95"] / 1000, critical[endpoint].get(hour, 0.0))
    hours = sorted({hour for each in flow.values() for hour in each})
    colours = _colours(flow)
    base = [0] * len(hours)
    for name, heights in _largest(flow, hours).items():
        above.bar(hours, heights, _BAR_WIDTH_DAYS, bottom=base, label=_short(name), color=colours.get(name, "0.7"))  # type: ignore[arg-type]  # see _figure
        base = [low + height for low, height in zip(base, heights, strict=True)]
    for name in [name for name in colours if name in critical]:
        points = sorted(critical[name].items())
        below.plot([hour for hour, _ in points], [value for _, value in points], marker="o", markersize=3, color=colours[name])  # type: ignore[arg-type]  # see _figure
    _label(above, "Messages handled per hour", "messages")
    _label(below, "Critical time (from sending to handled), 95th percentile", "seconds")
    below.set_ylim(bottom=0)
    below.set_xlabel("UTC")
    if len(hours) == 1:  # otherwise the single bar fills the whole width
        _one_hour((above, below), hours[0])
    figure.autofmt_xdate()
    _save(figure, path)


def plot_failures(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Plot rows of schemas.FAILURE_GROUPS: the largest groups, in the last 24 hours and in the 24 hours before."""
    groups = sorted(rows, key=lambda row: -row["messages"])[:MAX_GROUPS][::-1]
    figure, (axes,) = _figure(1)
    places = range(len(groups))
    axes.barh([place + 0.2 for place in places], [row["previous_24h"] for row in groups], 0.38, label="24 hours before", color="0.75")
    axes.barh([place - 0.2 for place in places], [row["last_24h"] for row in groups], 0.38, label="last 24 hours", color="C3")
    for place, row in zip(places, groups, strict=True):
        most = max(row["last_24h"], row["previous_24h"])
        axes.annotate(f"{row['messages']:,} in all", (most, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(list(places), [_group_label(row) for row in groups], fontsize=8)
    axes.margins(x=0.15)
    axes.set_xlim(left=0)
    _label(axes, "Failed messages by exception, endpoint and type", "")
    axes.set_xlabel("messages")
    _save(figure, path)


def _figure(count: int) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure with `count` axes, one below the other.

    Matplotlib's axes accept datetimes (its documentation, "Plotting dates and strings"), but its annotations say float.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SparkUnavailable(f"Plots need matplotlib: {install_command('spark')}") from error
    figure = Figure(figsize=_INCHES, layout="constrained")
    return figure, list(figure.subplots(count, 1, squeeze=False, sharex=True)[:, 0])


def _colours(flow: Mapping[str, Mapping[datetime, int]]) -> dict[str, str]:
    largest = sorted(flow, key=lambda name: -sum(flow[name].values()))
    return {name: f"C{number}" for number, name in enumerate(largest[:MAX_ENDPOINTS])}


def _largest(flow: Mapping[str, Mapping[datetime, int]], hours: Sequence[datetime]) -> dict[str, list[int]]:
    """Return the bar heights by endpoint, the largest first. Small endpoints are added up."""
    names = sorted(flow, key=lambda name: -sum(flow[name].values()))
    found = {name: [flow[name].get(hour, 0) for hour in hours] for name in names[:MAX_ENDPOINTS]}
    rest = names[MAX_ENDPOINTS:]
    return found | ({_REST: [sum(flow[name].get(hour, 0) for name in rest) for hour in hours]} if rest else {})


def _one_hour(all_axes: Sequence[Axes], hour: datetime) -> None:
    for axes in all_axes:
        axes.set_xlim(hour - timedelta(hours=3), hour + timedelta(hours=3))  # type: ignore[arg-type]  # see _figure


def _label(axes: Axes, title: str, unit: str) -> None:
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_ylabel(unit)
    axes.grid(axis="both", alpha=0.25)
    axes.set_axisbelow(True)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)


def _group_label(row: Mapping[str, Any]) -> str:
    exception = (row["exception_type"] or "(no exception)").rpartition(".")[2]
    return _short(f"{exception} in {row['endpoint'] or '?'}\n{(row['message_type'] or '(no type)').rpartition('.')[2]}")


def _short(text: str) -> str:
    text = text if len(text) <= MAX_LABEL_LENGTH else text[: MAX_LABEL_LENGTH - 1] + "…"
    return text.replace("$", r"\$").lstrip("_")  # matplotlib parses $…$ as mathematics, and hides labels that start with _


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, format="png")
