"""The spans of a real run through two endpoints, for the guide: `python -m tests.support.traced_run` writes them into docs/guides/tracing.md.

A program sends an order to Sales, whose handler sends a command and a delayed command to Billing. `rowpost run` runs both endpoints, and the
console exporter prints the spans.
"""

from __future__ import annotations

import io
import json
import re
import tempfile
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from rowpost.database import embedded
from rowpost.database.connection import connect
from rowpost.endpoint.telemetry import start_telemetry
from rowpost.settings.environment import load_settings
from rowpost.transport.queue import Queue
from tests.support.pages import DOCS
from tests.support.program import Program
from tests.support.traced import Order, sales

__all__ = ["BLOCK", "GUIDE", "shape", "shortened", "spans_of_a_run"]

GUIDE = DOCS / "guides" / "tracing.md"
BLOCK = re.compile(r"(<!-- made: trace -->\n```text\n)(.*?)(```\n<!-- end -->)", re.DOTALL)
ENVIRONMENT = """environment: traced
engine: postgresql
url: "${SHOP_URL}"
queues:
  Sales: {worker: {handler: "tests.support.traced:sales", limit: 1, peek_delay: 0.1}}
  Billing: {worker: {handler: "tests.support.traced:billing", limit: 1, peek_delay: 0.1}}
  error: {}
supervisor: {delayed_lateness: 0.1}
telemetry: {traces: console}
"""
#: spans of a run: four sends and receives of Sales and its sender, and two messages of Billing
SPANS = 9
_SHOWN = 6  # hexadecimal digits of an id


def spans_of_a_run(folder: Path, url: str) -> list[dict[str, Any]]:
    """Run both endpoints in an empty database, and return the spans as the exporter printed them, by their start."""
    path = folder / "traced.yml"
    path.write_text(ENVIRONMENT, encoding="utf-8")
    program = Program(path, folder, SHOP_URL=url, PYTHONPATH=str(Path(__file__).resolve().parents[2]))
    applied = program("apply")
    assert applied.code == 0, applied.err
    settings = replace(load_settings(path, offline=True), url=url)
    with connect(settings) as database:
        for name in ("Sales", "Billing"):
            Queue(name, database).purge()
        with redirect_stdout(io.StringIO()) as printed:
            with start_telemetry(settings, sales, service="Shop.Web"), sales.open(database) as bus:
                bus.send(Order(42), to="Sales")
    spans = [json.loads(line) for line in printed.getvalue().splitlines()]
    with program.started("run") as run:
        for line in run.process.stderr:
            if line.startswith(b'{"name"'):
                spans.append(json.loads(line))
            if len(spans) == SPANS:
                break
        run.interrupt()
        run.process.wait()
    return sorted(spans, key=lambda span: span["start_time"])


def shortened(spans: list[dict[str, Any]]) -> str:
    """Return a line for each span with what ties it to the others."""
    return "".join(json.dumps(_brief(span)) + "\n" for span in spans)


def _brief(span: dict[str, Any]) -> dict[str, Any]:
    parent = {"parent_id": _cut(span["parent_id"])} if span["parent_id"] else {}
    type_name = span["attributes"].get("nservicebus.enclosed_message_types", "").partition(",")[0]
    links = {"links": [_cut(link["context"]["span_id"]) for link in span["links"]]} if span["links"] else {}
    return {
        "service": span["resource"]["attributes"]["service.name"], "name": span["name"],
        **({"message": type_name} if type_name else {}),
        "trace_id": _cut(span["context"]["trace_id"]), "span_id": _cut(span["context"]["span_id"]), **parent, **links,
    }  # fmt: skip


def _cut(identifier: str) -> str:
    return identifier.removeprefix("0x")[:_SHOWN]


def shape(lines: str) -> list[tuple[Any, ...]]:
    """Return how the spans of shortened lines hang together, without their ids, which differ from run to run."""
    spans = [json.loads(line) for line in lines.splitlines()]
    traces = list(dict.fromkeys(span["trace_id"] for span in spans))
    places = {span["span_id"]: place for place, span in enumerate(spans)}
    return [
        (
            span["service"], span["name"], span.get("message"), traces.index(span["trace_id"]),
            places.get(span.get("parent_id")), [places[link] for link in span.get("links", ())],
        )
        for span in spans
    ]  # fmt: skip


def main() -> None:
    """Write the lines into the guide."""
    with tempfile.TemporaryDirectory(prefix="rowpost-traced-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        made = shortened(spans_of_a_run(folder, embedded.start(folder)))
        embedded.stop(folder)
    GUIDE.write_text(
        BLOCK.sub(lambda found: f"{found[1]}{made}{found[3]}", GUIDE.read_text(encoding="utf-8")), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
