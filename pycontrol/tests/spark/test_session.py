"""The session, and the settings that all jobs require."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from rowpost.spark.archive.schemas import MESSAGE
from tests.support.spark.killing import python_of

ENOUGH = """
import sys
from rowpost.spark.session import session
spark = session(master="local[2]", config={"spark.driver.memory": "1g"})
reader = spark.read.format("rowpost").option("environment", sys.argv[1]).option("queue", sys.argv[2])
print(len(reader.option("maxBytesPerBatch", 1024).load().limit(1).collect()))
"""


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
