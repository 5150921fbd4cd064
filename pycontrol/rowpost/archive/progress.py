"""Measure archivers and running streams: rows, bytes, lag in messages, seconds and bytes, spool, and who holds messages
back.

`Measured` is one progress, of a batch of `rowpost archive` or of a stream of Spark. It goes to receivers: JSON lines,
Prometheus, OpenTelemetry.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rowpost.errors import SettingsError
from rowpost.version import install_command

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

__all__ = ["OBSERVED", "STATES", "SUMS", "JsonLines", "Measured", "OpenTelemetry", "Prometheus", "Receiver"]

#: the name of the numbers that Spark observes
OBSERVED = "rowpost"
#: the numbers of a progress, with their text for Prometheus and OpenTelemetry; the first four are sums, the others
#: states
SUMS = {
    "rows": "Messages that the stream has read.",
    "bytes": "Bytes of headers and bodies that the stream has read.",
    "late": "Messages that came too late for their hour.",
    "written": "Rows that the sink has written.",
}
STATES = {
    "rows_per_second": "Messages per second of the last batch.",
    "batch_seconds": "Duration of the last batch in seconds.",
    "lag_messages": "Messages that the stream has not read.",
    "lag_seconds": "Age in seconds of the oldest message that the stream has not read.",
    "spooled": "Messages in the spool of a drain.",
    "holders": "Open transactions that hold messages back.",
}


@dataclass(frozen=True)
class Measured:
    """One progress of a stream, with the numbers of SUMS and STATES, of which the sums are those of its batch.

    A number that is not known is None. `at` is when the trigger started (UTC), and lag_messages of 100000 means at
    least so many. `late` is known of `metrics --live` only, and `written` not of `foreachBatch`, whose rows Spark does
    not count.
    """

    at: str
    query: str
    batch: int
    rows: int
    bytes: int | None
    rows_per_second: float | None
    batch_seconds: float | None
    lag_messages: int | None = None
    lag_seconds: float | None = None
    spooled: int | None = None
    held_by: Sequence[Mapping[str, Any]] = ()
    late: int | None = None
    written: int | None = None

    @classmethod
    def of(cls, progress: Mapping[str, Any]) -> Measured:
        """Convert the JSON of Spark's progress. A query with several sources has the largest lag of them."""
        offsets = [source.get("latestOffset") for source in progress.get("sources", ())]
        decoded = [json.loads(offset) if isinstance(offset, str) else offset for offset in offsets]
        reported = [each for each in decoded if isinstance(each, dict)]
        observed = (progress.get("observedMetrics") or {}).get(OBSERVED) or {}
        took = (progress.get("durationMs") or {}).get("triggerExecution")

        def largest(name: str) -> Any:
            return max((each[name] for each in reported if each.get(name) is not None), default=None)

        written = (progress.get("sink") or {}).get("numOutputRows", -1)
        return cls(
            at=progress["timestamp"],
            query=progress.get("name") or progress["id"],
            batch=progress["batchId"],
            rows=progress["numInputRows"],
            bytes=observed.get("bytes"),
            rows_per_second=progress.get("processedRowsPerSecond"),
            batch_seconds=None if took is None else took / 1000,
            lag_messages=largest("lag_messages"),
            lag_seconds=largest("lag_seconds"),
            spooled=largest("spooled"),
            held_by=tuple(holder for each in reported for holder in each.get("held_by", ())),
            written=None if written < 0 else written,
        )

    @property
    def holders(self) -> int:
        """The number of open transactions that hold messages back."""
        return len(self.held_by)

    def numbers(self) -> dict[str, float]:
        """Return the sums, of which one that is not known is 0, and the states that are known."""
        found = {name: getattr(self, name) for name in SUMS | STATES}
        return {name: value or 0 for name, value in found.items() if name in SUMS or value is not None}


Receiver = Callable[[Measured], None]


class JsonLines:
    """Append each progress to a file, as one line. Raises SettingsError if the file cannot be opened."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._failed = False
        try:
            self._file = self._path.open("a", encoding="utf-8")
        except OSError as error:
            raise SettingsError(
                f"The progress cannot be written to {path}: {error.strerror}. Name a file in a folder that exists."
            ) from error

    def __call__(self, measured: Measured) -> None:
        """Write one line. An error does not end the stream; it is printed once."""
        try:
            self._file.write(json.dumps(asdict(measured)) + "\n")
            self._file.flush()
        except OSError as error:
            if not self._failed:
                sys.stderr.write(
                    f"rowpost: the progress cannot be written to {self._path}: {error.strerror}; the stream goes on\n"
                )
            self._failed = True


class Prometheus:
    """Serve the numbers of all streams of this process at http://HOST:PORT/metrics, or raise SettingsError."""

    def __init__(self, host: str, port: int) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
        except ImportError as error:
            raise SettingsError(f"prometheus-client is not installed. Run: {install_command('metrics')}") from error
        registry = CollectorRegistry()
        self._shown: dict[str, Any] = {
            name: (Counter if name in SUMS else Gauge)(f"rowpost_spark_{name}", text, ["query"], registry=registry)
            for name, text in (SUMS | STATES).items()
        }
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            raise SettingsError(
                f"Prometheus cannot be served at {host}:{port}: {error.strerror}. Choose another port."
            ) from error

    def __call__(self, measured: Measured) -> None:
        """Update the numbers."""
        for name, value in measured.numbers().items():
            shown = self._shown[name].labels(measured.query)
            (shown.inc if name in SUMS else shown.set)(value)

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class OpenTelemetry:
    """Record the numbers as meters named `rowpost.spark.…`, with the attribute `rowpost.spark.query`."""

    def __init__(self, meters: MeterProvider) -> None:
        meter = meters.get_meter("rowpost.spark")
        counter, gauge = meter.create_counter, meter.create_gauge
        self._record = {name: counter(f"rowpost.spark.{name}", description=text).add for name, text in SUMS.items()}
        self._record |= {name: gauge(f"rowpost.spark.{name}", description=text).set for name, text in STATES.items()}

    def __call__(self, measured: Measured) -> None:
        """Record the numbers."""
        for name, value in measured.numbers().items():
            self._record[name](value, {"rowpost.spark.query": measured.query})
