"""The benchmark suite runs: one cheap workload on a server of its own, as a developer starts it."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_a_quick_run_of_one_workload_leaves_table_data_and_charts(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", "stale", "--output", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)

    assert done.returncode == 0, done.stderr
    (section,) = json.loads((tmp_path / "bench.json").read_text()).values()
    assert [len(line["rounds"]) for line in section["lines"]] == [2] * 4
    assert all(target["figure"] > 0 for target in section["targets"])
    assert section["title"] in (tmp_path / "bench.md").read_text()
    assert {"stale.svg", "stale.png", "targets.svg"} <= {file.name for file in tmp_path.iterdir()}
    assert section["targets"][0]["claim"] in done.stdout


def test_an_unknown_workload_is_refused_with_the_names_that_there_are(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "--only", "nothing", "--output", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert done.returncode == 2
    assert "calls" in done.stderr
    assert not list(tmp_path.iterdir())
