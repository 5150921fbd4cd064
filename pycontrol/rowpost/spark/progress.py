"""Measure running streams of Spark: what `archive/progress.py` has, with Spark's own metrics as one more receiver.

The source puts its lag into the `latestOffset` of Spark's own progress. The commands of `rowpost spark` pass progress
on from the query they follow. Other programs add a listener:

    spark.streams.addListener(listener(JsonLines("progress.jsonl"), Prometheus("127.0.0.1", 9464)))
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQueryListener

from rowpost.archive.progress import OBSERVED, STATES, SUMS, JsonLines, Measured, OpenTelemetry, Prometheus, Receiver

__all__ = [
    "JsonLines",
    "Measured",
    "OpenTelemetry",
    "Prometheus",
    "Receiver",
    "SparkMetrics",
    "listener",
    "measure_bytes",
]


def measure_bytes(df: DataFrame) -> DataFrame:
    """Let Spark count the bytes of headers and bodies while a stream reads them."""
    size = F.coalesce(F.octet_length("headers"), F.lit(0)) + F.coalesce(F.octet_length("body"), F.lit(0))
    return df.observe(OBSERVED, F.coalesce(F.sum(size), F.lit(0)).alias("bytes"))


class SparkMetrics:
    """Show the numbers in Spark's own metrics: in the servlet /metrics/json of its web pages, and in the sinks of
    metrics.properties.

    The name of a number is `…driver.AccumulatorSource.QUERY.NUMBER`. Spark Connect has no such metrics.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._context = spark.sparkContext._jsc.sc()
        self._shown: dict[str, Any] = {}

    def __call__(self, measured: Measured) -> None:
        """Update the numbers."""
        for name in (*SUMS, *STATES):
            value = getattr(measured, name)
            if value is not None:
                shown = self._accumulator(f"{measured.query}.{name}")
                shown.setValue(float(value) + (shown.value() if name in SUMS else 0.0))

    def _accumulator(self, name: str) -> Any:
        if name not in self._shown:
            self._shown[name] = self._context.doubleAccumulator(name)
            # a class and an object of Scala have this name: py4j finds the methods of the object by the name of its
            # class
            source = getattr(getattr(self._jvm.org.apache.spark.metrics.source, "DoubleAccumulatorSource$"), "MODULE$")
            named = self._jvm.java.util.HashMap()
            named.put(name, self._shown[name])
            source.register(self._context, self._jvm.PythonUtils.toScalaMap(named))
        return self._shown[name]


def listener(*receivers: Receiver) -> StreamingQueryListener:
    """Return a listener for `spark.streams.addListener`. Spark calls it after each batch of each query."""

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            pass

        def onQueryProgress(self, event: Any) -> None:
            measured = Measured.of(json.loads(event.progress.json))
            for receive in receivers:
                receive(measured)

        def onQueryTerminated(self, event: Any) -> None:
            pass

    return Listener()
