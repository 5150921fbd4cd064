"""A Spark session that is set up as a queue's data want it, wherever it runs.

Four cases, told apart by what is there: a session that runs already; a program under spark-submit, whose master stands;
Spark Connect, by a master `sc://…` or SPARK_REMOTE; otherwise this machine, `local[*]`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rowpost.errors import SparkUnavailable
from rowpost.spark.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LOCAL", "QUERY", "activate", "is_connect", "is_running", "session"]

#: what a query needs, on every kind of session
QUERY = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # Spark's default is INT96
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "8m",  # 64 MB of large bodies would fill a worker
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
}
#: what a Spark on this machine gets besides
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",  # a fifth less work a message than by TCP
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.executor.killOnFatalError.depth": "0",  # a task without memory fails with these words, and does not end the JVM
}
_LOG = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SOURCE = "pyspark_rowpost"
_GIBIBYTE = 1 << 30
_LARGEST_DRIVER = 8


def session(
    app_name: str = "rowpost", *, master: str | None = None, config: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session, or a new one; `config` goes over the settings above.

    `master` is Spark's: `local[4]`, `spark://…`, `yarn`, `k8s://…`; `sc://…` is Spark Connect.

    Raises:
        SparkUnavailable: no pyspark, no Java, or settings that Spark cannot start with.
    """
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkUnavailable(f"Spark is not installed ({error.name}): pip install 'rowpost[spark]'") from error
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # a worker would take python3 from the PATH
    try:
        spark = SparkSession.getActiveSession() or _build(SparkSession.builder.appName(app_name), master, dict(config or {}))
    except Exception as error:
        if isinstance(error, PySparkException) or type(error).__module__.startswith(("py4j.", "grpc")):
            raise SparkUnavailable(_why(error)) from error
        raise
    for key, value in {**QUERY, **_of_a_running(config)}.items():
        spark.conf.set(key, value)
    _register_source(spark)
    activate(spark)
    return spark


def activate(spark: SparkSession) -> None:
    """Makes it the session of this thread: Spark, when it writes, looks there for sources that are made in Python, and
    only the thread that started the session has it."""
    if not is_connect(spark):
        spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def is_running() -> bool:
    """Whether this program has a session already."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return False
    return SparkSession.getActiveSession() is not None


def _build(builder, master: str | None, config: dict[str, str]) -> SparkSession:
    remote = _remote(master)
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
            own = f"-Dlog4j2.configurationFile={_LOG.as_uri()} {settings.pop(_JAVA_OPTIONS, '')}".strip()
            quiet = {} if master.startswith("local-cluster") else {"spark.python.daemon.module": "rowpost.spark.daemon"}
            settings = {**LOCAL, **quiet, "spark.driver.memory": _driver_memory(), **settings, _JAVA_OPTIONS: own}
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _remote(master: str | None) -> str | None:
    if master is not None:
        return master if master.startswith("sc://") else None
    return os.environ.get("SPARK_REMOTE")


def _driver_memory() -> str:
    """A quarter of the machine, from 1 to 8 GB: Spark's own default of 1 GB is little for a day of audit."""
    quarter = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    return f"{min(max(quarter // _GIBIBYTE, 1), _LARGEST_DRIVER)}g"


def _of_a_running(config: Mapping[str, str] | None) -> dict[str, str]:
    """Those of the settings that a running session can still take."""
    return {key: value for key, value in (config or {}).items() if key.startswith("spark.sql.") and ".warehouse." not in key}


def _register_source(spark: SparkSession) -> None:
    """Spark finds the source by its module's name where it is installed; what came by --py-files it does not."""
    try:
        source = importlib.import_module(_SOURCE)
    except ModuleNotFoundError as error:
        if error.name != _SOURCE:
            raise
        return
    spark.dataSource.register(source.DefaultSource)


def is_connect(spark: SparkSession) -> bool:
    """Whether this is a session of Spark Connect, which has no SparkContext."""
    return not hasattr(type(spark), "sparkContext") or type(spark).__module__.startswith("pyspark.sql.connect")


def _why(error: Exception) -> str:
    text = str(error)
    if "must be at least" in text and "memory" in text.lower():
        line = next(line for line in text.splitlines() if "must be at least" in line)
        return f"Spark's memory is too small: {line.partition(': ')[2] or line} Say --conf spark.driver.memory=2g."
    if "JAVA_GATEWAY_EXITED" in text:
        return (
            "Java ended before Spark could start, and said why above: it may be a memory (--conf spark.driver.memory=2g) or an option "
            "that it does not take, or a Java that is broken. `rowpost spark doctor` names the Java."
        )
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return f"Spark does not start: {first} `rowpost spark doctor` looks for the cause."
