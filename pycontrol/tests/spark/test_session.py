"""The session, and the settings that all jobs require."""

import logging
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rowpost.spark.archive.schemas import MESSAGE
from tests.support.spark.killing import python_of
from tests.support.workers import eventually

ENOUGH = """
import sys
from rowpost.spark.session import session
spark = session(master="local[2]", config={"spark.driver.memory": "1g"})
reader = spark.read.format("rowpost").option("environment", sys.argv[1]).option("queue", sys.argv[2])
print(len(reader.option("maxBytesPerBatch", 1024).load().limit(1).collect()))
"""

#: Workers of PySpark's daemon: one that plans a read, and one that has imported the data source as well.
PLANNER = "pyspark.sql.worker.plan_data_source_read"
PLANNER_OF_QUEUES = f"import pyspark_rowpost\nfrom {PLANNER} import main\n"


def test_times_are_utc_and_written_as_every_engine_reads_them(spark):
    said = spark.sql("SELECT CAST(TIMESTAMP '2026-11-20 12:00:00' AS string) AS said").first().said

    assert said == "2026-11-20 12:00:00"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MICROS"


def test_a_message_goes_through_parquet_as_it_is(spark, tmp_path):
    row = ("id", None, None, True, datetime(2026, 11, 20, tzinfo=UTC), "{}", b"\x00\xff", 7)

    spark.createDataFrame([row], MESSAGE).write.parquet(str(tmp_path / "out"))

    assert spark.read.parquet(str(tmp_path / "out")).first().body == b"\x00\xff"


def test_a_reader_that_has_enough_leaves_no_stack_on_the_terminal(queues):
    queue = queues.make()
    queues.send(queue, [bytes(2000)] * 3000)

    ended = subprocess.run(
        [sys.executable, "-c", ENOUGH, queues.environment, queue],
        capture_output=True, text=True, timeout=200, env=python_of(Path(__file__).parents[2]), check=False,
    )  # fmt: skip

    assert (ended.returncode, ended.stdout.split()[-1]) == (0, "1"), ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_worker_without_work_leaves_no_stack_on_the_terminal(tmp_path):
    (tmp_path / "pyspark_planner_of_queues.py").write_text(PLANNER_OF_QUEUES)

    assert "BrokenPipeError" in said_when_closed(PLANNER, tmp_path)
    assert said_when_closed("pyspark_planner_of_queues", tmp_path) == ""


def said_when_closed(worker: str, folder: Path) -> str:
    """Start PySpark's daemon, let it start a worker, and close the worker's socket, as Spark does after a minute without work.

    Args:
        worker: the module that the worker runs. It is imported from `folder` too.

    Returns:
        What the worker wrote to stderr.
    """
    pipe = subprocess.PIPE
    sockets = tempfile.mkdtemp()  # short: the path of a socket has room for a hundred characters
    environment = python_of(Path(__file__).parents[2])
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(folder), environment["PYTHONPATH"]]),
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": sockets,
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",  # Spark's default
        "SPARK_REUSE_WORKER": "1",
    }
    with subprocess.Popen([sys.executable, "-m", "pyspark.daemon", worker], stdin=pipe, stdout=pipe, stderr=pipe, env=environment) as daemon:
        (length,) = struct.unpack("!i", daemon.stdout.read(4))
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(daemon.stdout.read(length).decode())
            (pid,) = struct.unpack("!i", connection.recv(4))
        eventually(lambda: not Path(f"/proc/{pid}").exists(), "the worker ends")
        said = daemon.communicate()[1].decode()
    shutil.rmtree(sockets)
    return said


def test_an_error_of_a_query_is_raised_and_not_logged_too(spark):
    from pyspark.errors import AnalysisException
    from pyspark.logger import PySparkLogger

    records = []
    handlers = [(PySparkLogger.getLogger(name), logging.Handler()) for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger")]
    for logger, handler in handlers:
        handler.emit = records.append
        logger.addHandler(handler)

    for ask in (lambda: spark.range(1).select("nothing"), lambda: spark.sql("select nothing")):
        with pytest.raises(AnalysisException):
            ask().collect()

    for logger, handler in handlers:
        logger.removeHandler(handler)
    assert records == []


def test_a_setting_that_only_the_start_can_have_is_accepted_there(tmp_path):
    """A table that needs Delta's jar is read so, with spark.sql.extensions."""
    program = "import sys; from rowpost.spark.session import session; spark = session(master='local[1]', config={sys.argv[1]: '7'}); print(spark.conf.get(sys.argv[1])); spark.stop()"

    ended = subprocess.run(
        [sys.executable, "-c", program, "spark.sql.ui.retainedExecutions"],
        env=python_of(Path(__file__).parents[2]),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )

    assert ended.stdout.strip() == "7", ended.stderr
