"""The one Spark session of all tests in this folder that a process runs: starting a JVM takes as long as thirty tests.

It ends with the last of these tests. Others, which follow in the same process, then have its memory.
"""

import json
import os
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from rowpost.cli.app import app
from rowpost.spark.session import session
from tests.support.fork_server import serving
from tests.support.postgres import Server
from tests.support.spark.outages import own_server
from tests.support.spark.queues import Queues


@pytest.fixture(scope="session")
def spark_url(lasting_database: Callable[[str], str]) -> str:
    """A database for these tests. Spark's processes inherit the variable with its URL from the JVM."""
    url = os.environ["ROWPOST_SPARK_TEST_URL"] = lasting_database("embedded")
    return url


@pytest.fixture(scope="package")
def spark(spark_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two cores and two attempts for each task, because retries are tested too. Its shuffles are in a folder of its own."""
    config = {
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(tmp_path_factory.mktemp("shuffles")),
    }
    with serving():
        spark = session("rowpost tests", master="local[2,2]", config=config)
        yield spark
        spark.stop()


@pytest.fixture(scope="package")
def queues(spark: SparkSession, spark_url: str, tmp_path_factory: pytest.TempPathFactory) -> Queues:
    """Create queues in that database."""
    return Queues(spark_url, tmp_path_factory.mktemp("environment"), spark=spark, ahead=12)


@pytest.fixture(scope="package")
def lasting(spark: SparkSession) -> Iterator[tuple[Server, Queues]]:
    """A server of its own for tests that stop it, and its queues."""
    with own_server(spark) as made:
        yield made


@pytest.fixture
def served(lasting: tuple[Server, Queues]) -> tuple[Server, Queues]:
    """The same, running."""
    server, _ = lasting
    if not server.running:
        server.start()
    return lasting


@pytest.fixture(scope="package")
def archive_without_spark(queues: Queues) -> Callable[..., dict]:
    """Archive queues without Spark, as `rowpost archive` does, for tests of what comes afterwards. Returns the JSON of its last line."""

    def call(*arguments: object) -> dict:
        ended = CliRunner().invoke(app, ["--env", queues.environment, "archive", *map(str, arguments)])
        assert ended.exit_code == 0, ended.output
        return json.loads(ended.stdout.strip().splitlines()[-1])

    return call


@pytest.fixture
def cli(queues: Queues) -> Callable[..., tuple[int, dict | None, str]]:
    """Run a command of rowpost spark. Returns its exit code, the JSON of its last line, and its stderr."""

    def call(*arguments: object) -> tuple[int, dict | None, str]:
        ended = CliRunner().invoke(app, ["--env", queues.environment, "spark", *map(str, arguments)])
        lines = ended.stdout.strip().splitlines()
        last = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else None
        return ended.exit_code, last, ended.stderr

    return call
