"""Each test class of NServiceBus has one entry in docs/reference/nservicebus-tests.yml, and the tests named there are run."""

import ast
from functools import cache

import pytest

from tests.support.behaviour import TESTS
from tests.support.nservicebus_tests import WITHOUT, Entry, classes_in, digest, load, parse

LATER, SUITES = load()
ENTRIES = [entry for suite in SUITES for entry in suite.entries]
NAMED = sorted({test for entry in ENTRIES for test in entry.tests})
#: markers of tests that no target of `make test/all` runs
NOT_RUN = {"slow", "skip", "xfail"}
TEXT = """
later: {mutators: "Functions around messages."}
suites:
  Sales.Tests:
    version: Sales 1.0
    classes: 2
    names: 0123456789ab
    folders:
      .:
        When_sold: {holds: a/test_a.py::test_sold, note: "Sold by hand."}
        .NET only: [When_disposed]
      Core:
        When_gone: {absent: "Nothing goes.", test: [a/test_a.py::test_gone]}
"""


@cache
def markers_by_test(path: str) -> dict[str, set[str]]:
    """Return the markers of each test function of a file, with those of the whole file."""
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    all_of_file = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    return {
        node.name: markers([*node.decorator_list, *all_of_file])
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def markers(expressions: list[ast.expr]) -> set[str]:
    nodes = [node for expression in expressions for node in ast.walk(expression)]
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pytest.mark"}


def is_run(test: str) -> bool:
    """Return whether a test exists, and a target of `make test/all` runs it on this implementation."""
    path, _, name = test.partition("::")
    # the scenarios of interop/ run with a stand-in for NServiceBus there
    if not (TESTS / path).is_file() or not path.rpartition("/")[2].startswith("test_") or path.startswith("interop/"):
        return False
    found = markers_by_test(path)
    return name in found and not found[name] & NOT_RUN


def test_each_named_test_exists_and_is_run():
    assert [test for test in NAMED if not is_run(test)] == []


def test_a_class_that_holds_names_a_test():
    assert [entry.path for entry in ENTRIES if entry.verdict == "holds" and not entry.tests] == []


def test_a_reason_or_a_note_is_a_sentence():
    assert [
        entry.path
        for entry in ENTRIES
        if entry.verdict != "later" and (entry.reason or entry.verdict in WITHOUT) and not entry.reason.endswith(".")
    ] == []


def test_few_classes_differ_are_absent_or_were_not_tried():
    assert len([entry for entry in ENTRIES if entry.verdict in WITHOUT]) <= 25


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_a_suite_has_every_class_of_the_sources(suite):
    paths = suite.paths()

    assert (len(paths), digest(paths)) == (suite.classes, suite.names)
    assert len(set(paths)) == len(paths)


def test_the_data_are_read():
    later, (suite,) = parse(TEXT)

    assert later == {"mutators": "Functions around messages."}
    assert suite.entries == (
        Entry(".", "When_sold", "holds", ("a/test_a.py::test_sold",), "Sold by hand."),
        Entry("Core", "When_gone", "absent", ("a/test_a.py::test_gone",), "Nothing goes."),
    )
    assert suite.paths() == ["When_sold", "Core/When_gone", "When_disposed"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "        When_sold:",
            "        When_sold: {absent: No.}\n        When_sold:",
            "more than one entry for When_sold",
        ),
        ("holds:", "stays:", "one of holds"),
        ("holds:", "test: a, holds:", "'note' is allowed"),
        ("absent:", "note: No., absent:", "'test' is allowed"),
        ("absent:", "differs: And it differs., absent:", "one of holds"),
        ("absent:", "later: webhooks, test:", "more than one entry for test"),
        ('absent: "Nothing goes."', "later: webhooks", "names no feature that the file lists: webhooks"),
        ("version:", "versions:", "Sales.Tests has the keys"),
    ],
)
def test_an_entry_in_another_form_is_refused(old, new, message):
    with pytest.raises(ValueError, match=message):
        parse(TEXT.replace(old, new))


@pytest.mark.parametrize(
    "test",
    [
        "repository/test_nservicebus_tests.py::test_that_nobody_wrote",
        "repository/test_that_nobody_wrote.py::test_the_data_are_read",
        "spark/test_kills.py::test_an_archive_by_tail_or_drain_survives_kills",
        "interop/test_dotnet.py::test_both_sides_have_the_same_messages",
        "support/pages.py::pages",
    ],
)
def test_what_no_target_runs_holds_nothing(test):
    assert not is_run(test)


def test_a_test_that_is_run_may_hold_a_class():
    assert is_run("repository/test_nservicebus_tests.py::test_the_data_are_read")


def test_the_classes_of_a_project_are_counted(tmp_path):
    project, linked = tmp_path / "Tests", tmp_path / "Other"
    (project / "Core").mkdir(parents=True)
    linked.mkdir()
    (project / "Core" / "a.cs").write_text(
        "public abstract class Base\n  [Test]\npublic class When_a : Base\n  [Test]\n  [TestCase(1)]\n  class Endpoint\n",
        encoding="utf-8",
    )
    (linked / "b.cs").write_text("class When_b\n  [Explicit, Test]\n", encoding="utf-8")
    (project / "Tests.csproj").write_text('<Compile Include="..\\Other\\b.cs" LinkBase="More" />', encoding="utf-8")

    assert classes_in(project) == ["Core/When_a", "More/When_b"]
    assert digest(["b", "a"]) == digest(["a", "b"]) != digest(["a", "c"])
