"""`make bench ARGS="--against COMMIT"`: the statistics of paired rounds, the order of the rounds, and the verdicts."""

import json
import random
import shutil
from types import SimpleNamespace

import pytest
from benchmarks.suite import against, program, report
from benchmarks.suite.against import NEW, OLD, CommitNotFound, Pairs
from benchmarks.suite.figures import Comparison, median_interval
from rich.console import Console

ABOUT = {
    "old": "0ld0ld0",
    "new": "new1234",
    "rounds": 15,
    "begun": "2026",
    "commit": "new1234",
    "postgresql": "18",
    "python": "3",
    "cores": 2,
    "load_before": 0.1,
}


class FakeSide:
    """A conversation that measures `figure()` and notes the requests in `requests`."""

    def __init__(self, side, figure, requests, units):
        self._side, self._figure, self._requests = side, figure, requests
        self.event = {"event": "case", "case": "send", "units": units}

    def ask(self, line):
        message = json.loads(line)
        self._requests.append((self._side, message))
        if "measure" not in message:
            return {"event": "done"}
        result = self._figure()
        return {"error": result} if isinstance(result, str) else {"figure": result}


def compare(old, new, pairs=15, old_units=None, new_units=None):
    """Compare two functions that return figures; return the comparisons, and the requests in their order."""
    requests, collected = [], Pairs(Console(quiet=True))
    sides = {
        OLD: FakeSide(OLD, old, requests, old_units or {"rowpost": "messages/s"}),
        NEW: FakeSide(NEW, new, requests, new_units or old_units or {"rowpost": "messages/s"}),
    }
    collected.talk(sides, {side: each.event for side, each in sides.items()}, range(pairs))
    return collected.comparisons(), requests


def noisy(rate, seed):
    """Rounds with 5 % noise around a rate."""
    source = random.Random(seed)
    return lambda: rate * source.gauss(1.0, 0.05)


@pytest.mark.parametrize(
    ("count", "ends"),
    # all 5 values are on one side of the median in 2 / 2**5 = 6.3 % of all samples, all 6 values in 2 / 2**6 = 3.1 %
    [(5, None), (6, (1, 6)), (8, (1, 8)), (9, (2, 8)), (12, (3, 10)), (15, (4, 12)), (20, (6, 15)), (30, (10, 21))],
)
def test_the_interval_of_a_median_consists_of_order_statistics(count, ends):
    values = list(range(1, count + 1))
    random.Random(1).shuffle(values)

    assert median_interval(values) == ends


def test_the_interval_holds_the_true_median_in_at_least_95_percent_of_all_samples():
    source = random.Random(2)
    samples = ([source.lognormvariate(0.0, 0.3) for _ in range(15)] for _ in range(4000))
    holds = sum(low <= 1.0 <= high for low, high in map(median_interval, samples))

    assert 0.95 <= holds / 4000 <= 0.98


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ((100.0,) * 6, (100.0,) * 6, "ok"),
        ((100.0,) * 6, (97.0,) * 6, "ok"),  # the median may be as low as 0.97
        ((100.0,) * 6, (96.0,) * 6, "slower"),
        ((100.0,) * 6, (90.0,) * 5 + (100.0,), "ok"),  # the interval reaches 1
        ((100.0,) * 6, (90.0,) * 5 + (99.0,), "slower"),
        ((100.0,) * 5, (50.0,) * 5, "too few pairs"),
    ],
)
def test_the_verdict_follows_the_median_ratio_and_its_interval(old, new, verdict):
    assert Comparison("case", "name", "messages/s", old, new).verdict == verdict


@pytest.mark.parametrize(("unit", "old", "new"), [("messages/s", 100.0, 200.0), ("ms", 10.0, 5.0), ("s", 1.0, 0.5)])
def test_a_ratio_above_1_is_better_for_rates_and_for_durations(unit, old, new):
    assert Comparison("case", "name", unit, (old,), (new,)).ratio == 2.0


def test_a_slowdown_of_10_percent_is_found_and_equal_sides_are_not():
    ((slower,), _), ((same,), _) = compare(noisy(1000, 3), noisy(900, 4)), compare(noisy(1000, 5), noisy(1000, 6))

    assert (slower.verdict, slower.passed) == ("slower", False)
    assert slower.ratio == pytest.approx(0.9, abs=0.04)
    assert (same.verdict, same.passed) == ("ok", True)


def test_a_drift_of_the_machine_is_no_slowdown():
    speed = [1000.0]

    def drifting():
        speed[0] *= 0.98
        return speed[0]

    ((figure,), _) = compare(drifting, drifting, pairs=16)

    assert figure.ratio == pytest.approx(1.0, abs=0.001)
    assert figure.verdict == "ok"


def test_the_sides_take_turns_for_each_figure_and_the_order_alternates():
    _, requests = compare(lambda: 1.0, lambda: 1.0, pairs=2, old_units={"a": "ms", "b": "ms"})

    assert [(side, message.get("measure")) for side, message in requests] == [
        (OLD, "a"), (NEW, "a"), (OLD, "b"), (NEW, "b"),
        (NEW, "a"), (OLD, "a"), (NEW, "b"), (OLD, "b"),
        (OLD, None), (NEW, None),
    ]  # fmt: skip


def test_a_figure_that_fails_or_that_the_new_side_lacks_does_not_pass():
    ((failed,), _) = compare(lambda: 1.0, lambda: "OSError: gone")
    gone, kept = compare(
        lambda: 1.0, lambda: 1.0, old_units={"gone": "ms", "kept": "ms"}, new_units={"kept": "ms", "added": "ms"}
    )[0]

    assert (failed.verdict, failed.passed, failed.error) == ("not measured", False, "new side: OSError: gone")
    assert (gone.name, gone.verdict, gone.passed) == ("gone", "not measured", False)
    assert (kept.name, kept.verdict, len(kept.ratios)) == ("kept", "ok", 15)


def test_both_sides_send_at_the_rate_of_the_slower_one():
    answers = []
    sides = {
        side: SimpleNamespace(ask=lambda line: answers.append(json.loads(line)) or {"event": "done"})
        for side in (OLD, NEW)
    }

    Pairs(Console(quiet=True)).talk(
        sides, {OLD: {"event": "load", "gap": 0.002}, NEW: {"event": "load", "gap": 0.003}}, range(1)
    )

    assert answers == [{"gap": 0.003}] * 2


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (
            {OLD: {"event": "done"}, NEW: {"event": "error", "error": "OSError: no disk"}},
            "the new side failed: OSError: no disk",
        ),
        ({OLD: {"event": "case", "case": "a", "units": {}}, NEW: {"event": "done"}}, "do not measure the same cases"),
    ],
)
def test_a_side_that_fails_or_that_measures_other_cases_fails_the_workload(events, reason):
    with pytest.raises(RuntimeError, match=reason):
        Pairs(Console(quiet=True)).talk({}, events, range(1))


def test_the_table_has_medians_ratio_interval_and_verdict(tmp_path):
    slower = Comparison("send", "rowpost", "messages/s", (1200.0, 1000.0, 1100.0, 1000.0, 1100.0, 1200.0), (900.0,) * 6)
    failed = Comparison("send", "other", "ms", error="new side: no | disk")
    sections = {"calls": report.comparison([slower, failed], ABOUT, 3.2)}

    report.save_comparison(tmp_path, "0ld0ld0", sections)
    text = (tmp_path / "against-0ld0ld0.md").read_text()

    assert report.load(tmp_path, "against-0ld0ld0.json") == sections
    assert "## calls: new1234 against 0ld0ld0" in text
    assert "| send | rowpost | 1,100 | 900 | messages/s | 0.818 | 0.750 to 0.900 | **slower** |" in text
    assert "|  | other |  |  | ms |  |  | **not measured** new side: no / disk |" in text


@pytest.mark.parametrize(
    ("comparisons", "error", "code"),
    [
        ([Comparison("c", "n", "ms", (1.0,) * 6, (1.0,) * 6)], "", 0),
        (
            [Comparison("c", "n", "ms", (1.0,) * 6, (1.0,) * 6), Comparison("c", "m", "ms", (1.0,) * 6, (2.0,) * 6)],
            "",
            1,
        ),
        ([Comparison("c", "n", "ms", error="gone")], "", 1),
        ([Comparison("c", "n", "ms", (1.0,) * 6, (1.0,) * 6)], "the old side failed", 1),
        ([], "", 1),
    ],
)
def test_the_exit_code_is_1_if_a_figure_is_slower_or_was_not_measured(monkeypatch, tmp_path, comparisons, error, code):
    sections = {"calls": report.comparison(comparisons, ABOUT, 1.0, error)}
    monkeypatch.setattr(against, "find_commits", lambda commit: against.Commits(commit, "new1234"))
    monkeypatch.setattr(against, "run", lambda *_: sections)
    monkeypatch.setattr(program.signal, "signal", lambda *_: None)

    assert program.main(["--against", "0ld0ld0", "--only", "calls", "--output", str(tmp_path)]) == code


def test_a_machine_without_git_is_told_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(CommitNotFound, match="git is not installed, and a comparison needs it"):
        against.find_commits("HEAD")
    assert report.circumstances(SimpleNamespace(version="18", durable={}), 1, {})["commit"] == ""


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_folder_that_is_no_git_checkout_is_named_in_the_error(monkeypatch, tmp_path):
    monkeypatch.setattr(against, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    with pytest.raises(CommitNotFound, match=f"{tmp_path} is not a git checkout"):
        against.find_commits("HEAD")
