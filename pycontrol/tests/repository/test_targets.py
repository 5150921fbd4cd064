"""Each test is in a target of `make test/all`, or among those that take hours; and `make test` has nothing twice that is long."""

import re
import shlex
import tomllib
from itertools import chain, combinations

import pytest

from tests.support.documents import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
OPTIONS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
MARKERS = [re.match(r"\w+", each)[0] for each in OPTIONS["markers"]]
#: what `make test/all` makes, and the targets whose tests take hours
ALL = ("test", "test/spark", "test/browser", "test/dist", "test/bench", "test/faults-sample", "lint")
HOURS = ("test/spark-slow",)


def variable(name: str) -> str:
    return re.search(rf"^{name} :?= (.*)$", MAKEFILE, re.MULTILINE)[1]


def rule(target: str) -> tuple[list[str], list[str]]:
    """Return a target's prerequisites, and the lines of its recipe."""
    found = re.search(rf"^{target}:([^#\n]*)(?:##.*)?\n((?:\t.*\n)*)", MAKEFILE, re.MULTILINE)
    text = found[2].replace("$(PYTEST)", variable("PYTEST")).replace("$(LONG)", variable("LONG"))
    return found[1].split(), text.splitlines()


def runs(target: str) -> list[list[str]]:
    """Return the calls of pytest that a target makes, those of its prerequisites included."""
    before, recipe = rule(target)
    own = [shlex.split(line.partition(" -m pytest ")[2]) for line in recipe if " -m pytest " in line]
    return own + [call for each in before if not each.startswith("$") for call in runs(each)]


def expression(call: list[str]) -> str:
    return call[call.index("-m") + 1]


def selects(expression: str, marks: tuple[str, ...]) -> bool:
    """Evaluate an expression of markers, which is one of Python too."""
    return eval(expression, {"__builtins__": {}}, {marker: marker in marks for marker in MARKERS})


def places() -> list[str]:
    """Return the markers that decide where a test runs."""
    return sorted(
        {
            marker
            for target in (*ALL, *HOURS)
            for call in runs(target)
            for marker in MARKERS
            if re.search(rf"\b{marker}\b", expression(call))
        }
    )


def test_a_test_with_any_markers_is_in_a_target_of_all_or_among_those_that_take_hours():
    expressions = [expression(call) for target in (*ALL, *HOURS) for call in runs(target)]
    combined = chain.from_iterable(combinations(places(), count) for count in range(len(places()) + 1))

    assert len(expressions) == len((*ALL, *HOURS))
    assert [marks for marks in combined if not any(selects(each, marks) for each in expressions)] == []


@pytest.mark.parametrize("marker", ["browser", "bench", "dist", "faults", "lint", "slow", "spark"])
def test_a_test_that_is_long_is_not_in_make_test(marker):
    (call,) = runs("test")

    assert selects(expression(call), ())
    assert not selects(expression(call), (marker,))


def test_what_holds_a_promise_about_spark_is_in_make_test_and_with_all_tests_of_spark():
    marks = ("spark", "spark_promise")

    assert [target for target in ALL if any(selects(expression(call), marks) for call in runs(target))] == [
        "test",
        "test/spark",
    ]


def test_no_target_of_all_names_a_folder_or_a_test():
    given = {word for target in (*ALL, *HOURS) for call in runs(target) for word in call if "/" in word or word == "-k"}

    assert given == set()


def test_all_makes_make_test_and_the_other_targets():
    (_, (recipe,)) = rule("test/rest")

    assert rule("test/all")[0] == ["test", "test/rest"]
    assert set(ALL) - set(recipe.split()) == {"test"}


def test_the_command_of_the_project_calls_make_test_and_then_the_others():
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()

    assert [line.removeprefix("exec ") for line in lines if re.match(r"(exec )?make ", line)] == [
        "make test",
        "make test/rest",
    ]
