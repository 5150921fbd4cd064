"""The benchmark suite runs one short workload on a separate server, and compares commits."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.bench

ROOT = Path(__file__).parents[3]
PROGRAMS = sorted(file.stem for file in (ROOT / "benchmarks").glob("*.py") if "__main__" in file.read_text())


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_says_what_it_takes(name):
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage:")


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


def test_an_unknown_workload_is_refused_with_the_available_names(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "--only", "nothing", "--output", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert done.returncode == 2
    assert "calls" in done.stderr
    assert not list(tmp_path.iterdir())


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.fixture
def folder():
    """A short path: the embedded server's socket is below it."""
    try:
        head = git("rev-parse", "--verify", "HEAD")
    except FileNotFoundError:
        pytest.skip("--against needs git, which is not installed")
    if head.returncode:
        pytest.skip(f"--against needs a git checkout: {head.stderr.strip()}")
    with tempfile.TemporaryDirectory(prefix="rowpost-") as folder:
        yield Path(folder)


def against_head(folder, **options):
    """Start a short comparison. Its temporary files, the worktree included, are below the folder."""
    command = [
        sys.executable,
        "-m",
        "benchmarks",
        "--against",
        "HEAD",
        "--quick",
        "--only",
        "calls",
        "--output",
        str(folder / "output"),
    ]
    environment = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def assert_nothing_is_left(folder):
    assert str(folder) not in git("worktree", "list").stdout
    assert [path.name for path in folder.iterdir() if path.name.startswith("rowpost-")] == []


def test_a_comparison_with_a_commit_leaves_a_table_and_data_and_no_worktree(folder):
    process = against_head(folder)
    output, errors = process.communicate(timeout=250)
    short = git("rev-parse", "--short", "HEAD").stdout.strip()
    figures = json.loads((folder / "output" / f"against-{short}.json").read_text())["calls"]["figures"]

    assert process.returncode == 0, errors
    assert {each["name"] for each in figures} == {"rowpost", "rowpost by pgbench"}
    assert [(len(each["old"]), len(each["new"]), each["verdict"]) for each in figures] == [(2, 2, "too few pairs")] * 10
    assert all(each["ratio"] > 0 for each in figures)
    assert "send one by one" in output
    assert f"against {short}" in (folder / "output" / f"against-{short}.md").read_text()
    assert_nothing_is_left(folder)


def test_an_interrupted_comparison_removes_its_worktree(folder):
    process = against_head(folder, start_new_session=True)
    for line in process.stderr:
        if line.rstrip().endswith("calls"):
            break
    while not list(folder.glob("rowpost-bench-*/notes-*")):  # until a side has started
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=100)

    assert process.returncode == -signal.SIGINT
    assert_nothing_is_left(folder)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--against", "no-such-commit"], "the repository has no such commit"),
        (["--against", "HEAD", "--only", "bodies"], "--against cannot compare bodies: choose from calls, endpoint"),
        (["--against", "HEAD", "--pairs", "0"], "--pairs must be at least 1 (got 0)"),
        (["--pairs", "3"], "--pairs needs --against COMMIT"),
    ],
)
def test_a_comparison_that_cannot_be_made_is_refused_with_the_reason(folder, arguments, reason):
    command = [sys.executable, "-m", "benchmarks", *arguments, "--output", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert done.returncode == 2
    assert reason in " ".join(done.stderr.split())
    assert not list(folder.iterdir())
