"""What Spark needs to reach object stores: a jar for each scheme, in the version of the Hadoop that Spark brings along.

rowpost itself writes and merges an archive's files with pyarrow, and reads and writes its log with deltalake, which
need no jar. Spark's jar is needed to read the archive, for a checkpoint in a store, and for what Spark writes there: a
replay's stored messages, results of `--out`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rowpost.archive.address import scheme_of
from rowpost.errors import SparkUnavailable
from rowpost.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_reachable", "hadoop_version", "is_reachable", "missing_jar", "store_of"]

_HADOOP = re.compile(r"hadoop-client-api-(\d[\w.]*)\.jar")
_MISSING = re.compile(r'Class (?P<name>[\w.]+) not found|No FileSystem for scheme "?(?P<scheme>\w+)')


@dataclass(frozen=True)
class Store:
    """A kind of object store, with the scheme as Spark spells it, and the jar that has its file system, by Maven's
    name.

    `variables` are those from which deltalake and pyarrow take the login; one of each group is needed.
    """

    scheme: str
    jar: str
    file_system: str
    variables: tuple[tuple[str, ...], ...]

    @property
    def coordinates(self) -> str:
        """Maven's name of the jar, with the version that fits."""
        return f"{self.jar}:{hadoop_version() or 'VERSION'}"

    @property
    def remedy(self) -> str:
        """What makes Spark read the store, as the end of a sentence."""
        return f"--conf spark.jars.packages={self.coordinates}, and spell the path {self.scheme}://…"


_STORES = (
    Store(
        "s3a",
        "org.apache.hadoop:hadoop-aws",
        "org.apache.hadoop.fs.s3a.S3AFileSystem",
        (
            ("AWS_REGION", "AWS_DEFAULT_REGION"),
            ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
        ),
    ),
    Store(
        "abfss",
        "org.apache.hadoop:hadoop-azure",
        "org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem",
        (("AZURE_STORAGE_ACCOUNT_NAME",), ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_CLIENT_ID")),
    ),
    Store(
        "gs",
        "org.apache.hadoop:hadoop-gcp",
        "org.apache.hadoop.fs.gs.GoogleHadoopFileSystem",
        (("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT"),),
    ),
)
_SPELLINGS = {"s3": "s3a", "s3n": "s3a", "abfs": "abfss"}


def store_of(path: str) -> Store | None:
    """Return the kind of store of a URI.

    None for a folder, or a scheme that needs no jar, or one that is not known here.
    """
    scheme = scheme_of(path)
    return next((store for store in _STORES if store.scheme == _SPELLINGS.get(scheme, scheme)), None)


def hadoop_version(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the version of Hadoop in the Spark that this process starts."""
    import pyspark

    jars = Path(environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"
    found = [match[1] for each in jars.glob("hadoop-client-api-*.jar") if (match := _HADOOP.fullmatch(each.name))]
    return found[0] if found else None


def is_reachable(spark: SparkSession, path: str) -> bool:
    """Tell whether Spark can read a path. Spark Connect is not asked: its server may have the jar."""
    if "://" not in path or is_connect(spark):
        return True
    try:
        jvm: Any = spark._jvm
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme_of(path), spark._jsc.hadoopConfiguration())
    except Exception as error:  # py4j raises what the JVM raises
        if missing_jar(str(error)) is None:
            raise
        return False
    return True


def check_reachable(spark: SparkSession, checkpoint: str) -> None:
    """Raise SparkUnavailable if Spark cannot write a checkpoint."""
    if is_reachable(spark, checkpoint):
        return
    store = store_of(checkpoint)
    jar = f"Start Spark with the jar: {store.remedy}" if store else "Start Spark with its jar"
    raise SparkUnavailable(
        f"Spark cannot store the checkpoint in {checkpoint}: it has no file system for {scheme_of(checkpoint)}://. "
        f"{jar}. Or name a folder that outlives this machine with --checkpoint; archiving itself needs no jar."
    )


def missing_jar(text: str) -> str | None:
    """Return a sentence if the text of a Java error says that the jar of a file system is missing."""
    found = _MISSING.search(text)
    if found is None or not (found["scheme"] or ".fs." in found["name"]):
        return None
    store = store_of(f"{found['scheme']}://") or next(
        (each for each in _STORES if each.file_system == found["name"]), None
    )
    if store is None:
        return f"Spark has no file system for this path ({found[0]}). Start Spark with its jar."
    return (
        f"Spark cannot reach {store.scheme}:// paths: its jar is missing. Add {store.remedy}. `rowpost spark doctor "
        "DIR` shows what else is needed."
    )
