"""The statements that the reference system keeps (reference section 3), each held by a test that bears its number."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
NAMED = re.compile(r"^def test_statement_(\d+a?(?:_and_\d+)*)_", re.MULTILINE)
#: 1 to 42 tables, names, sends, receives, workers; 43 to 49 modes; 50 to 57 time; 58 to 62 events; 63 to 71 failures, audit
STATEMENTS = range(1, 72)


@pytest.fixture(scope="module")
def held() -> set[int]:
    found = [name for path in TESTS.rglob("test_*.py") for name in NAMED.findall(path.read_text("utf-8"))]
    return {int(number) for name in found for number in re.findall(r"\d+", name)}


@pytest.mark.parametrize("number", STATEMENTS)
def test_a_test_bears_the_number_of_the_statement(held, number):
    assert number in held
