"""The metrics of a real run, for the guide: `python -m tests.support.metered` writes them into docs/guides/metrics.md.

The run is that of `make run`: the messages of the demo, and a burst of orders, on an embedded server of its own.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from rowpost.cli.demo.scenario import BILLING, Scenario
from rowpost.cli.demo.sender import orders_of
from rowpost.cli.demo.stage import Stage
from rowpost.database import embedded
from rowpost.database.connection import connect
from rowpost.settings.descriptor import MessageTypeSettings
from rowpost.settings.environment import Settings
from rowpost.transport.queue import Queue
from rowpost.workers import events
from tests.support.pages import DOCS, table
from tests.support.scraped import Scrape, scrape
from tests.support.traced import Order, sales
from tests.support.workers import Running, eventually

__all__ = ["BLOCK", "GUIDE", "listed", "metrics_of_a_run"]

GUIDE = DOCS / "guides" / "metrics.md"
BLOCK = re.compile(r"(<!-- made: metrics -->\n).*?(<!-- end -->)", re.DOTALL)
ORDERS, WORKERS = 2_000, 4
#: labels that are not shown with a value: the same for all samples of the run, or a bucket's limit
_LEFT_OUT = ("queue", "le")


def metrics_of_a_run(folder: Path, orders: int = ORDERS) -> Scrape:
    """Run the demo's scenario, and scrape the metrics when all messages are done."""
    settings = Settings(data_folder=folder)
    settings = replace(settings, url=embedded.start(folder))
    stage, scenario = Stage(settings, WORKERS), Scenario(orders)
    with connect(settings) as database:
        stage.set(database)
        described = MessageTypeSettings(name="Shop.Messages.PlaceOrder", owner="Team Shop")
        served = replace(
            stage.settings, supervisor=replace(stage.settings.supervisor, metrics=0), message_types=(described,)
        )
        with sales.open(database) as bus:  # one message that is not due in this run
            bus.send(Order(1), to=stage.names[BILLING], delay=timedelta(hours=1))
        with Running(served) as supervisor:
            queue = Queue(stage.names[BILLING], database)
            queue.send_many(orders_of(orders))
            supervisor.until(
                lambda: stage.count(database, scenario.expected.expired) == scenario.expected,
                "all messages are done",
                120,
            )
            supervisor.idle()
            url = supervisor.seen(events.MetricsServed)[0].url
            expected = scenario.expected.handled
            eventually(
                lambda: (
                    sum(each.value for each in scrape(url).samples if each.name == "rowpost_messages_handled_total")
                    == expected
                ),
                "all are counted",
            )
            found = scrape(url)
        stage.clear(database)
    return found


def listed(found: Scrape) -> str:
    """Return the table of the metrics: name, kind, labels, text, and the value of one queue of the run."""
    rows = []
    for name, family in found.families.items():
        if not name.startswith("rowpost_"):
            continue
        shown = f"{name}_total" if family.type == "counter" else name
        labels = ", ".join(
            f"`{label}`" for label in sorted({label for each in family.samples for label in each.labels} - {"le"})
        )
        rows.append((f"`{shown}`", family.type, labels or "-", family.documentation, _value(family)))
    return table(("Metric", "Kind", "Labels", "What it says", "In the run"), rows)


def _value(family) -> str:
    """The value of one sample, preferably of the queue with the orders; of a histogram the number and the mean of its values."""
    samples = [each for each in family.samples if each.labels.get("queue", BILLING) == BILLING] or family.samples
    if family.type == "histogram":
        buckets = Counter()
        for each in samples:
            if each.name.endswith("_bucket"):
                buckets[each.labels["le"]] += int(each.value)
        return f"{buckets['+Inf']:,} values, half of them up to {next(le for le, count in buckets.items() if 2 * count >= buckets['+Inf'])} s"
    if not samples:
        return "no sample"
    if family.name.endswith("_info"):
        return "1"
    return ", ".join(f"{_number(each.value)}{_apart(each.labels)}" for each in samples)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value < 1e9 else f"{value:.3f}"  # a time in seconds since 1970


def _apart(labels: dict[str, str]) -> str:
    others = [value for label, value in labels.items() if label not in _LEFT_OUT]
    return f" ({', '.join(others)})" if others else ""


def main() -> None:
    """Write the table into the guide."""
    with tempfile.TemporaryDirectory(prefix="rowpost-metered-", ignore_cleanup_errors=True) as folder:
        made = listed(metrics_of_a_run(Path(folder)))
        embedded.stop(Path(folder))
    GUIDE.write_text(
        BLOCK.sub(lambda found: f"{found[1]}{made}\n{found[2]}", GUIDE.read_text(encoding="utf-8")), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
