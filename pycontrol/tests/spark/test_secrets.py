"""A password is only in the process environment: not in plans, command lines, event logs or checkpoints."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark.killing import python_of
from tests.support.spark.messages import audit_row

PYCONTROL = Path(__file__).parents[2]
MARKER = "marker-Zx81qP"
JOB = """
import json, sys
import psutil
from pathlib import Path
from rowpost.spark.session import session
from rowpost.spark.jobs import archive, replay
queue, target, out, environment, log = sys.argv[1:6]
spark = session(master="local[1]", config={"spark.eventLog.enabled": "true", "spark.eventLog.dir": "file://" + log,
                                           "spark.eventLog.compress": "false", "spark.driver.memory": "1g"})
df = archive.read_queue(spark, queue, environment)
plans = df._jdf.queryExecution().toString() + str(spark.sparkContext.getConf().getAll())
job = archive.ArchiveJob(queue, out, environment)
archive.run(spark, job)
replay.run(spark, out, replay.Replay("k", target), environment=environment, resolve_queues=lambda names: {n: n for n in names})
plans += "\\n".join(" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"]))
plans += "\\n".join(each.sparkSession.conf.getAll.__repr__() for each in [df])
print(json.dumps({"plans": plans}))
spark.stop()
"""


@pytest.mark.timeout(240)
def test_a_password_is_in_no_plan_command_line_event_log_or_checkpoint(queues, spark_url, tmp_path):
    queue, target = queues.make(), queues.make()
    queues.send(queue, [b"1"] * 3, audit_row()[5])
    role = "spark_marker"
    with queues.connect() as database:
        database.driver_connection.execute(f"DROP ROLE IF EXISTS {role}")
        database.driver_connection.execute(f"CREATE ROLE {role} LOGIN SUPERUSER PASSWORD '{MARKER}'")
    environment = tmp_path / "secret.yml"
    url = re.sub(r"^(postgres(?:ql)?://)[^@/]*@?", rf"\g<1>{role}:${{ROWPOST_MARKER}}@", spark_url)
    environment.write_text(f'engine: postgresql\nurl: "{url}"\nqueues: {{}}\n')
    log, out, script = tmp_path / "log", tmp_path / "out", tmp_path / "job.py"
    log.mkdir()
    script.write_text(JOB)

    done = subprocess.run(
        [sys.executable, str(script), queue, target, str(out), str(environment), str(log)],
        env={**python_of(PYCONTROL), "ROWPOST_MARKER": MARKER}, capture_output=True, text=True, timeout=200,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-3000:]
    assert queues.depth(target) == 3
    plans = json.loads(done.stdout.splitlines()[-1])["plans"]
    assert "rowpost" in plans and MARKER not in plans
    assert MARKER not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr and "\tat " not in done.stderr, done.stderr[-3000:]
    files = [path for folder in (log, out) for path in folder.rglob("*") if path.is_file()]
    assert any(log in path.parents for path in files) and any("offsets" in path.parts for path in files)
    assert [path for path in files if MARKER.encode() in path.read_bytes()] == []
