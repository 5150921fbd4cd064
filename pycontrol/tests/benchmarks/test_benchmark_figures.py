"""The benchmark suite's medians, ratios, verdicts and table."""

from types import SimpleNamespace

import pytest
from benchmarks.suite import figures, program, report
from benchmarks.suite.figures import Contender, Line, Lines, Round, Scale, Target, percentile, ratio, take_turns

ABOUT = {
    "postgresql": "18",
    "python": "3",
    "cores": 2,
    "rounds": 2,
    "peers": {"pgmq": "1.13"},
    "commit": "c",
    "begun": "2026",
    "load_before": 0.1,
}


def test_a_lines_figure_is_the_median_of_its_rounds_and_a_ratio_the_median_of_theirs():
    ours, theirs = Line("send", "rowpost", (10.0, 90.0, 30.0)), Line("send", "peer", (1.0, 30.0, 30.0))

    assert ours.figure == 30.0
    assert ratio(ours, theirs) == 3.0
    assert ratio(ours, Line("send", "absent")) is None


def test_the_best_of_others_is_found_round_by_round():
    lines = Lines([Line("c", "rowpost", (10.0, 10.0)), Line("c", "a", (5.0, 1.0)), Line("c", "b", (1.0, 2.0))])

    assert lines.ratio_to_best("c", ("a", "b", "missing")) == pytest.approx((10 / 5 + 10 / 2) / 2)
    assert lines.ratio_to_best("c", ("missing",)) is None


def test_a_percentile_is_the_smallest_value_that_the_share_does_not_exceed():
    assert [percentile([5, 1, 4, 2, 3], share) for share in (0.0, 0.5, 0.8, 0.99, 1.0)] == [1, 3, 4, 5, 5]


@pytest.mark.parametrize(
    ("figure", "at_most", "verdict"),
    [
        (2.0, False, "PASS"),
        (1.0, False, "short by 50 %"),
        (2.0, True, "PASS"),
        (3.0, True, "short by 50 %"),
        (9.0, True, "4.5 times too much"),
        (None, True, "not measured"),
    ],
)
def test_a_target_says_by_how_much_it_is_missed(figure, at_most, verdict):
    assert Target("claim", figure, 2.0, at_most=at_most).verdict == verdict


def test_contenders_take_turns_and_the_order_turns_too():
    seen = []

    def contender(name, **options):
        return Contender(name, lambda: seen.append(name) or 1.0, **options)

    lines = take_turns("case", [contender("a"), contender("b", warm=False)], rounds=3)

    assert "".join(seen) == "a" + "ab" + "ba" + "ab"
    assert [(line.name, line.rounds) for line in lines] == [("a", (1.0,) * 3), ("b", (1.0,) * 3)]


def test_a_contender_that_fails_is_out_with_its_reason_and_the_others_go_on(capsys):
    calls = []

    def fails():
        calls.append(1)
        raise OSError("gone")

    bad, good = take_turns(
        "case", [Contender("bad", fails), Contender("good", lambda: Round(2.0, {"p99": 3.0}))], rounds=2
    )

    assert (bad.rounds, bad.error, len(calls)) == ((), "OSError: gone", 1)
    assert (good.figure, good.more) == (2.0, {"p99": 3.0})
    assert "gone" in capsys.readouterr().err


def test_a_workload_that_fails_is_a_section_with_an_error(capsys):
    def measure(server, scale):
        raise OSError("no disk")

    module = SimpleNamespace(
        __doc__="Title.\n\nText.", measure=measure, targets=lambda lines: [Target("claim", lines.figure("c"), 1.0)]
    )
    section = program._measure(module, SimpleNamespace(version="18", durable={}), Scale(rounds=1))

    assert section["error"] == "OSError: no disk"
    assert section["targets"][0]["verdict"] == "not measured"
    assert "no disk" in capsys.readouterr().err


def test_the_table_has_figures_guarantees_targets_and_what_failed(tmp_path):
    lines = [
        Line("send", "rowpost", (1200.0, 1000.0, 1100.0), does="exactly once"),
        Line("send", "peer", error="no | such\npackage"),
    ]
    section = report.section("Sending", "How.", lines, [Target("send: to peer", 1.4, 2.0)], ABOUT, 3.2)

    report.save(tmp_path, {"sending": section})
    text = (tmp_path / report.TABLE).read_text()

    assert report.load(tmp_path) == {"sending": section}
    assert "| send | rowpost | **1,100** | messages/s | 1,000 to 1,200 | exactly once |" in text
    assert "no figure: no / such package" in text
    assert "| send: to peer | 1.40 | at least 2.00 times | **short by 30 %** |" in text


def test_every_workload_has_a_title_lines_and_targets():
    for name, workload in program.WORKLOADS.items():
        assert workload.__doc__.splitlines()[0].endswith("."), name
        assert all(target.figure is None for target in workload.targets(figures.Lines([]))), name
