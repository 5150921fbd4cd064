"""Create Spark sessions with the settings that the jobs and the data source need.

A session that already runs belongs to the program that started it, so its settings stay as they are. No job depends on
them: what a job needs is an option of its own reader or writer. QUERY only saves time and memory. Without one,
`session` takes what spark-submit has fixed, Spark Connect if the master starts with `sc://` or SPARK_REMOTE is set, or
else this machine, `local[*]`.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rowpost.errors import SparkUnavailable
from rowpost.spark.java import ensure_java, memory_bytes
from rowpost.version import install_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["activate", "is_connect", "is_running", "session"]

#: Settings of queries, for a session that is started here. Other sessions do without them.
QUERY = {
    "spark.sql.session.timeZone": "UTC",  # times are shown, and conditions are read, as the archive has them
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # Spark's default is INT96
    "spark.sql.parquet.compression.codec": "zstd",
    # Spark's default of 64 MB exhausts a worker's memory with large bodies
    "spark.sql.execution.arrow.maxBytesPerBatch": "8m",
    # Spark's default starts a task for each file of an archive
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
}
#: Additional settings of a Spark on this machine.
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",  # uses a fifth less CPU time a message than TCP
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    # if memory runs out, the task fails with that reason; the JVM stays alive
    "spark.executor.killOnFatalError.depth": "0",
}
_LOG = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SOURCE = "pyspark_rowpost"
_GIBIBYTE = 1 << 30
_MAX_DRIVER_GB = 8


def session(
    app_name: str = "rowpost", *, master: str | None = None, config: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the running session, or start one. A running one gets no setting that `config` does not name.

    `master` is `local[4]`, `spark://…`, `yarn`, `k8s://…`, or `sc://…` for Spark Connect. `config` overrides QUERY and
    LOCAL. Raises SparkUnavailable if pyspark or Java is missing, or Spark cannot start with these settings.
    """
    try:
        from pyspark.errors import PySparkException
        from pyspark.logger import PySparkLogger
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkUnavailable(f"Spark is not installed ({error.name}): {install_command('spark')}") from error
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # without it a worker runs the python3 of the PATH
    spark, given = _running(), dict(config or {})
    settings = {key: given[key] for key in given if key.startswith("spark.sql.") and ".warehouse." not in key}
    try:
        if spark is None:
            spark = _build(SparkSession.builder.appName(app_name), master, given)
            settings = QUERY | settings  # Spark Connect takes none when it starts
            for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
                # PySpark logs each error of a query with the stack trace of the JVM, and raises it too
                PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    except Exception as error:
        if isinstance(error, PySparkException) or type(error).__module__.startswith(("py4j.", "grpc")):
            raise SparkUnavailable(_why(error)) from error
        raise
    for key, value in settings.items():
        try:
            if spark.conf.get(key, None) != value:  # some, such as spark.sql.extensions, can be set at the start only
                spark.conf.set(key, value)
        except PySparkException as error:
            raise SparkUnavailable(f"Spark refuses the setting {key}={value}: {str(error).splitlines()[0]}") from error
    _register_source(spark)
    activate(spark)
    return spark


def activate(spark: SparkSession) -> None:
    """Make `spark` the active session of this thread, in which Spark looks for data sources when it writes.

    Only its own has one.
    """
    if not is_connect(spark):
        spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def is_running() -> bool:
    """Tell whether this program has a session."""
    return _running() is not None


def _running() -> SparkSession | None:
    """Return the session of this thread or, in a thread that has none, the session of the program."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        found = SparkSession.active()
    except PySparkException:
        return None
    return found if is_connect(found) or found.sparkContext._jsc is not None else None  # None after SparkContext.stop()


def _build(builder: SparkSession.Builder, master: str | None, config: dict[str, str]) -> SparkSession:
    remote = os.environ.get("SPARK_REMOTE") if master is None else (master if master.startswith("sc://") else None)
    if remote is not None:
        return builder.remote(remote).getOrCreate()
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        ensure_java()
        master = master or "local[*]"
    settings = {**QUERY, **config}
    if master is not None:
        builder = builder.master(master)
        if not submitted and master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            java_options = f"-Dlog4j2.configurationFile={_LOG.as_uri()} {settings.pop(_JAVA_OPTIONS, '')}".strip()
            # a quarter of the machine: Spark's default of 1 GB is too small for a day of audit messages
            memory = min(max(memory_bytes() // 4 // _GIBIBYTE, 1), _MAX_DRIVER_GB)
            settings = {**LOCAL, "spark.driver.memory": f"{memory}g", **settings, _JAVA_OPTIONS: java_options}
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _register_source(spark: SparkSession) -> None:
    """Register the data source. Spark finds it by itself only if it is installed, not if it came by --py-files."""
    try:
        source = importlib.import_module(_SOURCE)
    except ModuleNotFoundError as error:
        if error.name != _SOURCE:
            raise
        return
    spark.dataSource.register(source.DefaultSource)


def is_connect(spark: SparkSession) -> bool:
    """Tell whether `spark` is a session of Spark Connect, which has no SparkContext."""
    return not hasattr(type(spark), "sparkContext") or type(spark).__module__.startswith("pyspark.sql.connect")


def _why(error: Exception) -> str:
    text = str(error)
    if "must be at least" in text and "memory" in text.lower():
        line = next(line for line in text.splitlines() if "must be at least" in line)
        return (
            f"Spark cannot start: its memory is too small: {line.partition(': ')[2] or line} Add --conf "
            "spark.driver.memory=2g."
        )
    if "JAVA_GATEWAY_EXITED" in text:
        return (
            "Spark cannot start: Java exited, and printed its reason above. The memory (--conf "
            "spark.driver.memory=2g) or an option is not valid, or the Java installation is broken. `rowpost spark "
            "doctor` shows which Java is used."
        )
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return f"Spark cannot start: {first} Run `rowpost spark doctor` to find the cause."
