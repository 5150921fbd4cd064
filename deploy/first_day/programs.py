"""The steps that are programs of this repository: its tests, the tSQLt classes, and the benchmark."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from unittest.mock import patch
from xml.etree import ElementTree

from deploy.first_day.ended import Failed, ProvedNothing
from deploy.first_day.scratch import Place

__all__ = ["Counts", "calls", "concurrency", "conformance", "count_tests", "scaling", "tsqlt"]

ROOT = Path(__file__).resolve().parents[2]
TESTS = "pycontrol/tests"
SERVER = "ROWPOST_TEST_SQLSERVER"
MINUTES = 90
SHOWN = 20
#: tests of sessions that work at the same time, and of processes that are killed
CONCURRENT = (
    "procedures/test_receive.py", "workers/test_exactly_once.py", "workers/test_crash.py", "workers/test_receive_cursor_races.py",
    "sagas/test_saga_races.py", "pipeline/test_batch_crashes.py", "pipeline/test_no_loss.py", "transactions/test_mode_crashes.py",
)  # fmt: skip
#: a short run: enough to show that the tests reach the server
QUICK = {"conformance": ("procedures/test_send.py",), "concurrency": ("workers/test_receive_cursor_races.py",)}


@dataclass(frozen=True)
class Counts:
    """The tests of a JUnit report. `failed` are names with the first line of the reason; `skipped` counts reasons."""

    passed: int
    failed: tuple[str, ...]
    skipped: Mapping[str, int]

    def seen(self) -> list[str]:
        """Return what a verdict shows."""
        more = len(self.failed) - SHOWN
        lines = [
            f"{self.passed} passed, {len(self.failed)} failed, {sum(self.skipped.values())} skipped",
            *self.failed[:SHOWN],
        ]
        lines += [f"and {more} more, in the JUnit report"] if more > 0 else []
        return lines + [f"skipped {number}: {reason}" for reason, number in sorted(self.skipped.items())]


def count_tests(report: str) -> Counts:
    """Count the tests of a JUnit report. Raises ElementTree.ParseError: no report."""
    passed, failed, skipped = 0, [], Counter[str]()
    for case in ElementTree.fromstring(report).iter("testcase"):  # noqa: S314 -- written by a program of ours
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        skip = case.find("skipped")
        if bad is not None:
            failed.append(
                f"{case.get('classname', '')}.{case.get('name', '')}: {bad.get('message', '').partition(chr(10))[0][:200]}"
            )
        elif skip is not None:
            skipped[skip.get("message", "")] += 1
        else:
            passed += 1
    return Counts(passed, tuple(failed), dict(skipped))


def _judged(place: Place, report: Path, ended: str) -> Sequence[str]:
    """Turn a JUnit report into what was seen; hide what must not be shown in the report itself, too."""
    if not report.is_file():
        raise Failed(f"no report of tests was written; {ended}", [f"see {report.stem}.log"])
    text = place.secrets.hide(report.read_text(encoding="utf-8"))
    report.write_text(text, encoding="utf-8")
    counts = count_tests(text)
    if counts.failed:
        raise Failed(f"{len(counts.failed)} tests failed", counts.seen())
    if not counts.passed:
        raise ProvedNothing("no test could be run here", counts.seen())
    return counts.seen()


def _run(place: Place, name: str, command: Sequence[str]) -> str:
    """Run a program with the server in its environment; its output goes to NAME.log. Return how it ended."""
    environment = {
        **os.environ,
        SERVER: place.admin_url,
        "ROWPOST_TEST_RCSI": place.rcsi,
        "PYTHONPATH": os.pathsep.join((str(ROOT / "pycontrol"), str(ROOT))),
    }
    process = subprocess.Popen(  # noqa: S603 -- a program of this repository
        [sys.executable, *command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    ended, output = "", b""
    try:
        output, _ = process.communicate(timeout=MINUTES * 60)
        ended = f"it exited with code {process.returncode}"
    except subprocess.TimeoutExpired:
        ended = f"it was stopped after {MINUTES} minutes"
    finally:
        if process.poll() is None:  # also if this run is interrupted
            _kill(process.pid)
            output, _ = process.communicate()
        text = place.secrets.hide(output.decode("utf-8", "replace"))
        (place.folder / f"{name}.log").write_text(text, encoding="utf-8")
    return ended


def _kill(process_id: int) -> None:
    """End a program with the processes that it started."""
    if sys.platform == "win32":
        subprocess.run(["taskkill", "/F", "/T", "/PID", str(process_id)], check=False)  # noqa: S603, S607 -- Windows' own
    else:
        os.killpg(process_id, signal.SIGKILL)


def _tests(place: Place, name: str, paths: Sequence[str]) -> Sequence[str]:
    report = (place.folder / f"{name}{place.rcsi and f'-rcsi-{place.rcsi}'}.xml").resolve()
    chosen = [f"{TESTS}/{path}" for path in (QUICK[name] if place.quick else paths)]
    ended = _run(
        place, report.stem, ["-m", "pytest", "-n", "0", "-k", "sqlserver", "--junit-xml", str(report), *chosen]
    )
    return _judged(place, report, ended)


def conformance(place: Place) -> Sequence[str]:
    """Run the tests of all procedures, with the same assertions as on PostgreSQL."""
    return _tests(
        place,
        "conformance",
        ["procedures", "deploy/test_apply.py", "deploy/test_verify.py", "deploy/test_operations.py"],
    )


def concurrency(place: Place) -> Sequence[str]:
    """Run the tests of concurrent sessions, of races and of processes that are killed."""
    return _tests(place, "concurrency", CONCURRENT)


def tsqlt(place: Place) -> Sequence[str]:
    """Run the tSQLt classes; in a quick run one of them."""
    runner = import_module("deploy.tsqlt.run")
    if place.babelfish:
        support = import_module("tests.support.babelfish")
        runner.make_runner = support.HandRunner
    report, output = place.folder / "tsqlt.xml", io.StringIO()
    arguments = ["--junit", str(report), *place.tsqlt, *(["queue_peek_queue"] if place.quick else [])]
    try:
        with patch.dict(os.environ, {SERVER: place.admin_url}), contextlib.redirect_stdout(output):
            code = runner.main(arguments)
    finally:
        (place.folder / "tsqlt.log").write_text(place.secrets.hide(output.getvalue()), encoding="utf-8")
    return _judged(place, report, f"it exited with code {code}")


def calls(place: Place) -> Sequence[str]:
    """Measure one client that sends, and one that receives."""
    return _benchmark(place, "calls")


def scaling(place: Place) -> Sequence[str]:
    """Measure worker processes on one backlog."""
    return _benchmark(place, "scaling")


def _benchmark(place: Place, name: str) -> Sequence[str]:
    result = (place.folder / f"{name}.json").resolve()
    short = ["--rounds", "1", "--seconds", "0.5", "--workers", "1", "2"] if place.quick else ["--rounds", "3"]
    ended = _run(place, name, ["-m", "benchmarks.sqlserver", "--only", name, "--output", str(result), *short])
    if not result.is_file():
        raise Failed(f"the benchmark wrote no result; {ended}", [f"see {name}.log"])
    lines = json.loads(result.read_text(encoding="utf-8"))[name]
    seen = [
        f"{line['case']}, {line['name']}: {line['error'] or format(line['messages/s'], ',.0f') + ' messages/s'}"
        for line in lines
    ]
    if any(line["error"] for line in lines):
        raise Failed("a line has no figure", seen)
    return seen
