"""The guide of tracing shows the spans of a real run: who made them, and how they hang together. Their ids differ from run to run."""

from pathlib import Path

from tests.support.traced_run import BLOCK, GUIDE, shape, shortened, spans_of_a_run


def test_the_guide_shows_a_trace_through_two_endpoints_with_a_delayed_message(tmp_path: Path, lasting_database):
    made = shape(shortened(spans_of_a_run(tmp_path, lasting_database("embedded"))))
    shown = BLOCK.search(GUIDE.read_text(encoding="utf-8"))

    assert shown, "the guide has no block for the spans"
    assert made == shape(shown[2]), "run: python -m tests.support.traced_run, in pycontrol/"
    assert [span[3] for span in made] == [0] * 7 + [1] * 2, "the delayed message has a trace of its own"
    assert made[7][5] == [4], "which is linked to its send"
