"""The one Spark session of all tests here: starting a JVM takes as long as thirty of them."""

import os
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

from rowpost.spark.session import session
from tests.support.spark.queues import Queues

#: what a user's machine may say to every Spark, and a test must not hear
LEAKING = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS", "JAVA_TOOL_OPTIONS", "PYSPARK_PYTHON")


@pytest.fixture(scope="session")
def spark_url(new_database: Callable[[str], str]) -> str:
    """A database for Spark's tests, named to Spark's processes by a variable: they inherit it from the JVM."""
    url = os.environ["ROWPOST_SPARK_TEST_URL"] = new_database("embedded")
    return url


@pytest.fixture(scope="session")
def spark(spark_url: str) -> Iterator[SparkSession]:
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


@pytest.fixture(scope="session")
def queues(spark: SparkSession, spark_url: str, tmp_path_factory: pytest.TempPathFactory) -> Queues:
    """Makes queues in that database."""
    return Queues(spark_url, tmp_path_factory.mktemp("environment"), spark=spark)
