"""rowpost dashboard as a program: it says where it listens, answers there, and stops by a signal."""

import json

import httpx
import pytest

from tests.support.program import program
from tests.support.workers import eventually

__all__ = ["program"]


def test_it_says_where_it_listens_answers_and_stops(program):
    with program.started("dashboard", "--port", "0", "--read-only", "--json") as started:
        said = json.loads(started.process.stdout.readline())
        queues = eventually(
            lambda: httpx.get(f"{said['url']}api/v1/queues", timeout=30).json(), "the dashboard answers"
        )
        started.interrupt()
        ended = started.ended()

    assert [each["queue"] for each in queues["queues"]] == ["Billing", "Sales", "audit", "error"]
    assert (said["event"], said["read_only"]) == ("Serving", True)
    assert ended.code == 0, ended.err


@pytest.mark.parametrize(
    "options",
    [("--host", "0.0.0.0"), ("--token-file", "missing"), ("--user-header", "X-User"), ("--proxy", "10.0.0.1")],
    ids=" ".join,
)
def test_what_would_be_open_to_others_is_refused(program, options):
    ended = program("dashboard", "--port", "0", *options)

    assert ended.code == 3, ended.out
    assert "rowpost: " in ended.err
    assert "Traceback" not in ended.err
