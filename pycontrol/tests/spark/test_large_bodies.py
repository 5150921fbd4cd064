"""A body of 256 MB is read, archived and replayed; if the memory is too small, the error names the setting.

Each command runs in a separate process, because a JVM's memory is fixed when it starts. `make test/spark-slow ARGS="-k large"`.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage
from tests.support.spark.killing import ROWPOST, python_of
from tests.support.spark.messages import error_row

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SIZE = 256 << 20
ENOUGH, LITTLE = "6g", "1g"
FAILED = 7
BATCH = """
import sys
from rowpost.spark.session import session
spark = session(config={"spark.driver.memory": sys.argv[3]})
frame = spark.read.format("rowpost").option("environment", sys.argv[1]).option("queue", sys.argv[2]).load()
print(frame.selectExpr("sha2(body, 256) AS digest").collect()[0].digest)
"""


@pytest.fixture
def program(queues):
    """Run Python code with arguments in a separate process. Returns the completed process."""

    def run(code: str, *arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=600, env=python_of(Path(__file__).parents[2]), check=False
        )

    return run


@pytest.fixture
def rowpost(queues, program):
    return lambda *arguments: program(ROWPOST, "--env", queues.environment, "spark", *map(str, arguments))


@pytest.fixture
def large(queues):
    """A queue with one message of 256 MB, the queue in which it failed, and its digest."""
    queue, back = queues.make(), queues.make()
    body = os.urandom(1 << 20) * (SIZE >> 20)
    with queues.connect() as database:
        Queue(queue, database).send_many([OutgoingMessage(body, error_row("m1", FailedQ=f"{back}@[public]")[5])])
    return queue, back, hashlib.sha256(body).hexdigest()


def test_a_body_of_256_mb_goes_through_source_archive_and_replay(queues, large, program, rowpost, tmp_path):
    queue, back, digest = large

    read = program(BATCH, queues.environment, queue, ENOUGH)
    archived = rowpost("archive", queue, tmp_path / "out", "--conf", f"spark.driver.memory={ENOUGH}")
    replayed = rowpost("replay", tmp_path / "out", back, "--job", "large", "--conf", f"spark.driver.memory={ENOUGH}")

    assert read.stdout.split()[-1] == digest, read.stderr[-2000:]
    assert json.loads(archived.stdout.splitlines()[-1])["messages"] == 1, archived.stderr[-2000:]
    kept = DeltaTable(str(tmp_path / "out")).to_pyarrow_table(columns=["body"])
    assert hashlib.sha256(kept["body"][0].as_buffer()).hexdigest() == digest
    assert replayed.returncode == 0, replayed.stderr[-2000:]
    with queues.connect() as database:
        rows = database.driver_connection.execute(
            f"SELECT encode(sha256(body), 'hex') FROM public.\"{back}\""
        ).fetchall()
    assert rows == [(digest,)]


def test_a_memory_that_is_too_small_is_named_with_its_setting_and_nothing_is_half_written(large, rowpost, tmp_path):
    queue, _, _ = large

    ended = rowpost("archive", queue, tmp_path / "out", "--conf", f"spark.driver.memory={LITTLE}")

    assert ended.returncode == FAILED
    assert "--conf spark.driver.memory=" in ended.stderr and "Traceback" not in ended.stderr
    assert DeltaTable(str(tmp_path / "out")).file_uris() == []
