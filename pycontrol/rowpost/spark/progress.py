"""Measure running streams: rows, bytes, lag in messages, seconds and bytes, spool, and who holds messages back.

The source puts its lag into the `latestOffset` of Spark's own progress. `Measured` is one progress in rowpost's terms. It goes to
receivers: JSON lines, Prometheus, OpenTelemetry, Spark's own metrics. The commands of `rowpost spark` pass progress on from the query they follow.
Other programs add a listener:

    spark.streams.addListener(listener(JsonLines("progress.jsonl"), Prometheus("127.0.0.1", 9464)))
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rowpost.errors import SettingsError
from rowpost.version import install_command

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQueryListener

__all__ = ["JsonLines", "Measured", "OpenTelemetry", "Prometheus", "Receiver", "SparkMetrics", "listener", "measure_bytes"]

OBSERVED = "rowpost"
#: the numbers of a progress, with their text for Prometheus and OpenTelemetry; the first four are sums, the others states
_SUMS = {
    "rows": "Messages that the stream has read.",
    "bytes": "Bytes of headers and bodies that the stream has read.",
    "late": "Messages that came too late for their hour.",
    "written": "Rows that the sink has written.",
}
_STATES = {
    "rows_per_second": "Messages per second of the last batch.",
    "batch_seconds": "Duration of the last batch in seconds.",
    "lag_messages": "Messages that the stream has not read.",
    "lag_seconds": "Age in seconds of the oldest message that the stream has not read.",
    "spooled": "Messages in the spool of a drain.",
    "holders": "Open transactions that hold messages back.",
}


@dataclass(frozen=True)
class Measured:
    """One progress of a stream. A number that is not known is None.

    Attributes:
        at: when the trigger started (UTC).
        query: the query's name, or its id.
        batch: its number.
        rows: messages in the batch.
        bytes: size of their headers and bodies.
        batch_seconds: duration of the batch.
        lag_messages: messages that the stream has not read; 100000 means at least so many.
        lag_seconds: age of the oldest of them.
        spooled: messages in the spool of a drain.
        held_by: open transactions that hold messages back.
        late: messages of the batch that came too late for their hour, of `metrics --live`.
        written: rows of the batch that the sink has written: for `writeStream.format("rowpost")`, messages. Spark does not count what `foreachBatch` writes.
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
    held_by: tuple[Mapping[str, Any], ...] = ()
    late: int | None = None
    written: int | None = None

    @classmethod
    def of(cls, progress: Mapping[str, Any]) -> Measured:
        """Convert the JSON of Spark's progress. A query with several sources has the largest lag of them."""
        reported = [_decoded(source.get("latestOffset")) for source in progress.get("sources", ())]
        observed = (progress.get("observedMetrics") or {}).get(OBSERVED) or {}
        took = (progress.get("durationMs") or {}).get("triggerExecution")
        written = (progress.get("sink") or {}).get("numOutputRows", -1)
        return cls(
            at=progress["timestamp"],
            query=progress.get("name") or progress["id"],
            batch=progress["batchId"],
            rows=progress["numInputRows"],
            bytes=observed.get("bytes"),
            rows_per_second=progress.get("processedRowsPerSecond"),
            batch_seconds=None if took is None else took / 1000,
            lag_messages=_largest(each.get("lag_messages") for each in reported),
            lag_seconds=_largest(each.get("lag_seconds") for each in reported),
            spooled=_largest(each.get("spooled") for each in reported),
            held_by=tuple(holder for each in reported for holder in each.get("held_by", ())),
            written=None if written < 0 else written,
        )

    @property
    def holders(self) -> int:
        """The number of open transactions that hold messages back."""
        return len(self.held_by)


Receiver = Callable[[Measured], None]


def _decoded(offset: Any) -> Mapping[str, Any]:
    found = json.loads(offset) if isinstance(offset, str) else offset
    return found if isinstance(found, dict) else {}


def _largest(values: Iterable[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)


def measure_bytes(df: DataFrame) -> DataFrame:
    """Let Spark count the bytes of headers and bodies while a stream reads them."""
    from pyspark.sql import functions as F

    size = F.coalesce(F.octet_length("headers"), F.lit(0)) + F.coalesce(F.octet_length("body"), F.lit(0))
    return df.observe(OBSERVED, F.coalesce(F.sum(size), F.lit(0)).alias("bytes"))


class JsonLines:
    """Append each progress to a file, as one line. Raises SettingsError if the file cannot be opened."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._failed = False
        try:
            self._file = self._path.open("a", encoding="utf-8")
        except OSError as error:
            raise SettingsError(f"The progress cannot be written to {path}: {error.strerror}. Name a file in a folder that exists.") from error

    def __call__(self, measured: Measured) -> None:
        """Write one line. An error does not end the stream; it is printed once."""
        try:
            self._file.write(json.dumps(asdict(measured)) + "\n")
            self._file.flush()
        except OSError as error:
            if not self._failed:
                sys.stderr.write(f"rowpost: the progress cannot be written to {self._path}: {error.strerror}; the stream goes on\n")
            self._failed = True


class Prometheus:
    """Serve the numbers of all streams of this process at http://HOST:PORT/metrics.

    Raises:
        SettingsError: prometheus-client is not installed, or the port cannot be used.
    """

    def __init__(self, host: str, port: int) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
        except ImportError as error:
            raise SettingsError(f"prometheus-client is not installed. Run: {install_command('spark')}") from error
        registry = CollectorRegistry()
        self._sums = {name: Counter(f"rowpost_spark_{name}", text, ["query"], registry=registry) for name, text in _SUMS.items()}
        self._states = {name: Gauge(f"rowpost_spark_{name}", text, ["query"], registry=registry) for name, text in _STATES.items()}
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            raise SettingsError(f"Prometheus cannot be served at {host}:{port}: {error.strerror}. Choose another port.") from error

    def __call__(self, measured: Measured) -> None:
        """Update the numbers."""
        for name, counter in self._sums.items():
            counter.labels(measured.query).inc(getattr(measured, name) or 0)
        for name, gauge in self._states.items():
            if getattr(measured, name) is not None:
                gauge.labels(measured.query).set(getattr(measured, name))

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class OpenTelemetry:
    """Record the numbers as meters named `rowpost.spark.…`, with the attribute `rowpost.spark.query`."""

    def __init__(self, meters: MeterProvider) -> None:
        meter = meters.get_meter("rowpost.spark")
        self._sums = {name: meter.create_counter(f"rowpost.spark.{name}", description=text) for name, text in _SUMS.items()}
        self._states = {name: meter.create_gauge(f"rowpost.spark.{name}", description=text) for name, text in _STATES.items()}

    def __call__(self, measured: Measured) -> None:
        """Record the numbers."""
        attributes = {"rowpost.spark.query": measured.query}
        for name, counter in self._sums.items():
            counter.add(getattr(measured, name) or 0, attributes)
        for name, gauge in self._states.items():
            if getattr(measured, name) is not None:
                gauge.set(getattr(measured, name), attributes)


class SparkMetrics:
    """Show the numbers in Spark's own metrics: in the servlet /metrics/json of its web pages, and in the sinks of metrics.properties.

    The name of a number is `…driver.AccumulatorSource.QUERY.NUMBER`. Spark Connect has no such metrics.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._context = spark.sparkContext._jsc.sc()
        self._shown: dict[str, Any] = {}

    def __call__(self, measured: Measured) -> None:
        """Update the numbers."""
        for name in (*_SUMS, *_STATES):
            value = getattr(measured, name)
            if value is not None:
                shown = self._accumulator(f"{measured.query}.{name}")
                shown.setValue(float(value) + (shown.value() if name in _SUMS else 0.0))

    def _accumulator(self, name: str) -> Any:
        if name not in self._shown:
            self._shown[name] = self._context.doubleAccumulator(name)
            # a class and an object of Scala have this name: py4j finds the methods of the object by the name of its class
            source = getattr(getattr(self._jvm.org.apache.spark.metrics.source, "DoubleAccumulatorSource$"), "MODULE$")
            named = self._jvm.java.util.HashMap()
            named.put(name, self._shown[name])
            source.register(self._context, self._jvm.PythonUtils.toScalaMap(named))
        return self._shown[name]


def listener(*receivers: Receiver) -> StreamingQueryListener:
    """Return a listener for `spark.streams.addListener`. Spark calls it after each batch of each query."""
    from pyspark.sql.streaming import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            pass

        def onQueryProgress(self, event: Any) -> None:
            measured = Measured.of(json.loads(event.progress.json))
            for receive in receivers:
                receive(measured)

        def onQueryIdle(self, event: Any) -> None:
            pass

        def onQueryTerminated(self, event: Any) -> None:
            pass

    return Listener()
