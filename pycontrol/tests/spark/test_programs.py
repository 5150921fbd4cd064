"""What a process of its own prints and stores: no stack of Java, and no secret. One program does everything, because each one starts a JVM.

A password is only in the environment of the process: not in plans, command lines, event logs or checkpoints.
"""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.spark.archives import ArchiveMaker
from tests.support.spark.killing import python_of
from tests.support.spark.messages import audit_row

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]  # Spark asks a master that is not there for a minute

PYCONTROL = Path(__file__).parents[2]
OK, USAGE, UNAVAILABLE, FAILED = 0, 2, 4, 7
MARKER = "marker-Zx81qP"
#: A setting that a session can have from its start only.
STATIC = "spark.sql.ui.retainedExecutions"
UNREADABLE = ("nonsense (", "nocolumn = 1")
MASTERS = ("local[x]", "nonsense", "spark://nohost.invalid:7077")
#: A line before what each part writes to stdout and stderr.
BEFORE = "=== "
PROGRAM = """
import json, os, sys
import psutil
from rowpost.cli import main
from rowpost.spark.jobs import archive, replay
from rowpost.spark.session import session

with open(sys.argv[1]) as file:
    asked = json.load(file)

def begin(part):
    for stream in (sys.stdout, sys.stderr):
        print(asked["before"] + part, file=stream, flush=True)

def command(part, *arguments):
    begin(part)
    sys.argv = ["rowpost", "--env", asked["environment"], "spark", *arguments]
    try:
        main()
    except SystemExit as ended:
        print(json.dumps(ended.code))

*first, last = asked["masters"]
for master in first:
    command(master, "verify", asked["made"], "--master", master, "--conf", "spark.driver.memory=1g")
for condition in asked["unreadable"]:
    command(condition, "erase", asked["made"], "--where", condition, "--reason", "r", "--master", "local[2]")

begin("enough")
log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": "file://" + asked["log"], "spark.eventLog.compress": "false"}
spark = session(master="local[2]", config={**log, asked["static"]: "7", "spark.sql.shuffle.partitions": "2"})
reader = spark.read.format("rowpost").option("environment", asked["environment"]).option("queue", asked["large"])
print(json.dumps([len(reader.option("maxBytesPerBatch", 1024).load().limit(1).collect()), spark.conf.get(asked["static"])]))

begin("jobs")
df = archive.read_queue(spark, asked["queue"], asked["environment"])
plans = df._jdf.queryExecution().toString() + str(spark.sparkContext.getConf().getAll()) + repr(spark.conf.getAll)
archive.run(spark, archive.ArchiveJob(asked["queue"], asked["out"], asked["environment"]))
same = lambda names: {name: name for name in names}
replay.run(spark, asked["out"], replay.Replay("k", asked["target"]), environment=asked["environment"], resolve_queues=same)
plans += " ".join(" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"]))
print(json.dumps(plans))
spark.stop()

command(last, "verify", asked["made"], "--master", last)
"""


@dataclass(frozen=True)
class Ended:
    """What the program has left: the JSON of the last line and the stderr of each part, and its files."""

    results: dict[str, object]
    said: dict[str, str]
    files: list[Path]
    sent: int


@pytest.fixture(scope="module")
def ended(spark, queues, spark_url, tmp_path_factory) -> Ended:
    folder, role = tmp_path_factory.mktemp("program"), "spark_marker"
    large, queue, target = queues.make(), queues.make(), queues.make()
    queues.send(large, [bytes(2000)] * 3000)
    queues.send(queue, [b"1"] * 3, audit_row()[5])
    made = ArchiveMaker(folder / "made")
    made.batch(0, [audit_row("m")])
    with queues.connect() as database:
        database.driver_connection.execute(f"DROP ROLE IF EXISTS {role}")
        database.driver_connection.execute(f"CREATE ROLE {role} LOGIN SUPERUSER PASSWORD '{MARKER}'")
    environment, log, out = folder / "secret.yml", folder / "log", folder / "out"
    url = re.sub(r"^(postgres(?:ql)?://)[^@/]*@?", rf"\g<1>{role}:${{ROWPOST_MARKER}}@", spark_url)
    environment.write_text(f'engine: postgresql\nurl: "{url}"\nqueues: {{}}\n')
    log.mkdir()
    program, arguments = (
        folder / "program.py",
        folder / "arguments.json",
    )  # as text of the command line, the program would be in what it prints
    program.write_text(PROGRAM)
    asked = {
        "before": BEFORE, "masters": MASTERS, "unreadable": UNREADABLE, "static": STATIC, "environment": str(environment), "made": made.address,
        "large": large, "queue": queue, "target": target, "out": str(out), "log": str(log),
    }  # fmt: skip
    arguments.write_text(json.dumps(asked))

    done = subprocess.run(
        [sys.executable, str(program), str(arguments)],
        env={**python_of(PYCONTROL), "ROWPOST_MARKER": MARKER}, capture_output=True, text=True, timeout=500, cwd=folder,
    )  # fmt: skip

    assert done.returncode == OK, done.stdout + done.stderr[-3000:]
    printed, said = (
        dict(part.split("\n", 1) for part in text.split(BEFORE)[1:]) for text in (done.stdout, done.stderr)
    )
    results = {part: json.loads(text.splitlines()[-1]) for part, text in printed.items()}
    files = [path for place in (log, out) for path in place.rglob("*") if path.is_file()]
    return Ended(results, said, files, queues.depth(target))


@pytest.mark.parametrize("master", MASTERS)
def test_a_wrong_master_is_explained(ended, master):
    assert ended.results[master] == UNAVAILABLE and "Spark cannot start" in ended.said[master]
    assert "Py4J" not in ended.said[master]


@pytest.mark.parametrize("where", UNREADABLE)
def test_a_wrong_condition_is_explained_without_a_stack(ended, where):
    lines = [
        line
        for line in ended.said[where].splitlines()
        if line and "platformdirs" not in line and "user_runtime_dir" not in line
    ]

    assert ended.results[where] in (USAGE, FAILED) and len(lines) == 1 and lines[0].startswith("rowpost: "), lines


def test_nothing_leaves_a_stack_on_the_terminal(ended):
    """The part that reads enough closes the pipe of a worker that still sends."""
    assert ended.results["enough"][0] == 1
    assert [part for part, text in ended.said.items() if "Traceback" in text or "\tat " in text] == []


def test_a_setting_that_only_the_start_can_have_is_accepted_there(ended):
    """A table that needs Delta's jar is read so, with spark.sql.extensions."""
    assert ended.results["enough"][1] == "7"


def test_a_password_is_in_no_plan_command_line_event_log_or_checkpoint(ended):
    plans = ended.results["jobs"]

    assert ended.sent == 3 and "rowpost" in plans
    assert MARKER not in json.dumps(ended.results) + json.dumps(ended.said)
    assert any("log" in path.parts for path in ended.files) and any("offsets" in path.parts for path in ended.files)
    assert [path for path in ended.files if MARKER.encode() in path.read_bytes()] == []
