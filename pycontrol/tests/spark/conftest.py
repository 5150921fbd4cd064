"""The one Spark session of all tests here: starting a JVM takes as long as thirty of them."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from rowpost.spark.session import session

#: what a user's machine may say to every Spark, and a test must not hear
LEAKING = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS", "JAVA_TOOL_OPTIONS", "PYSPARK_PYTHON")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores, and four attempts a task: retries are part of what is tested."""
    for name in LEAKING:
        os.environ.pop(name, None)
    spark = session(
        "rowpost tests",
        master="local[2,4]",
        config={"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2",
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"},
    )
    yield spark
    spark.stop()
