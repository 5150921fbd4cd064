"""Each promise of docs/reference/behaviour.yml is held by a test, and each marker names a promise."""

import re

from tests.support.behaviour import TESTS, marked_tests, markers_of, promises, recorded
from tests.support.engines_report import WITHOUT_TARGET

KEYS = [key for texts in promises().values() for key in texts]


def test_each_promise_is_held_by_a_test():
    assert set(KEYS) - {key for test in marked_tests() for key in test.keys} == set()


def test_keys_of_promises_are_unique():
    assert len(KEYS) == len(set(KEYS))


def test_a_marker_names_a_promise():
    assert [(test.id, key) for test in marked_tests() for key in test.keys if key not in KEYS] == []


def test_a_promise_is_a_sentence():
    assert [text for texts in promises().values() for text in texts.values() if not text.endswith(".")] == []


def test_recorded_outcomes_belong_to_tests_that_exist():
    known = {test.id for test in marked_tests()}

    assert {name for tests in recorded().values() for name in tests} - known == set()


def test_a_recorded_test_either_uses_the_shared_database_or_does_not():
    both = set(recorded().get(WITHOUT_TARGET, {})) & {
        name for engine, tests in recorded().items() if engine != WITHOUT_TARGET for name in tests
    }

    assert both == set()


def test_markers_are_read_from_the_source():
    source = '@pytest.mark.promise("a", "b")\ndef test_one(): ...\n@pytest.mark.slow\n@other\ndef test_two(): ...\n'

    assert [(test.id, test.keys) for test in markers_of(source, "x.py")] == [("x.py::test_one", ("a", "b"))]


def test_no_test_is_named_after_a_number_of_a_statement():
    numbered = re.compile(r"^def (test_statement_\d\w*)", re.MULTILINE)
    found = [name for path in TESTS.rglob("test_*.py") for name in numbered.findall(path.read_text(encoding="utf-8"))]

    assert found == []
