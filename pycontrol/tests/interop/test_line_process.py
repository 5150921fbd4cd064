"""The driver of the two endpoints, with real processes: it starts, waits, tells, stops, and says how a program ended."""

import os
import signal
from itertools import count

import pytest

from tests.support.interop.line_process import CommandFailed, LineProcess, ProcessEnded
from tests.support.interop.stage import PYCONTROL

NAMES = (f"Driven{number}" for number in count(1))


@pytest.fixture
def start(target, sql, tmp_path):
    """Starts the stand-in: `start(url=...)`."""
    started = []
    sql.run(f"DELETE FROM {sql.table('SubscriptionRouting')}")

    def one(url=None):
        name = next(NAMES)
        command = ["-m", "tests.support.interop.stand_in", name, url or target.url, f"engine={target.settings.engine}"]
        started.append(LineProcess(name, command, tmp_path, {**os.environ, "PYTHONPATH": str(PYCONTROL)}))
        return started[-1]

    yield one
    for process in started:
        process.kill()


def test_it_starts_takes_a_command_reports_and_stops(start):
    driven = start().started()

    driven.send("BillOrder", {"OrderId": 7}, local=1)
    (report,) = driven.wait_for("handled", "BillOrder")
    code = driven.stop()

    assert report["body"] == {"OrderId": 7}
    assert report["headers"]["NServiceBus.OriginatingEndpoint"] == driven.name
    assert code == 0
    assert driven.reports[0] == {"started": driven.name}
    assert driven.reports[-1] == {"stopped": driven.name}


def test_lines_that_are_no_reports_are_its_log(start):
    driven = start().started()

    driven.stop()

    assert set(driven.log.splitlines()) == {
        "stand-in: this line is the log's, as those of NServiceBus's logger are", "stand-in: this one too",
    }  # fmt: skip


def test_a_program_that_cannot_start_says_why(start, target):
    wrong = (
        target.url + ";Database=none_such"
        if target.settings.engine == "sqlserver"
        else "postgresql://nobody@/none?host=/none/such"
    )

    with pytest.raises(ProcessEnded, match=r"Driven\d+ did not start: (DatabaseUnavailable|LoginRefused)"):
        start(wrong).started()


def test_a_wait_ends_at_once_when_the_program_is_killed(start):
    driven = start().started()

    driven.process.send_signal(signal.SIGKILL)

    with pytest.raises(ProcessEnded, match=r"exit code -9 before 1 x handled = 'Fail'(?s:.*)stand-in: this one too"):
        driven.wait_for("handled", "Fail")


def test_a_command_to_a_program_that_has_ended_shows_its_log(start):
    driven = start().started()
    driven.process.send_signal(signal.SIGKILL)
    driven.process.wait()

    with pytest.raises(ProcessEnded, match=r"ended with exit code -9(?s:.*)stand-in: this one too"):
        driven.send("BillOrder", {"OrderId": 7}, local=1)


def test_a_command_that_fails_says_why_and_the_next_one_works(start):
    driven = start().started()

    with pytest.raises(CommandFailed, match=r"Driven\d+ could not send: ValueError: no type Nothing"):
        driven.send("Nothing", {}, local=1)
    driven.send("BillOrder", {"OrderId": 8}, local=1)

    assert driven.wait_for("handled", "BillOrder")[0]["body"] == {"OrderId": 8}


def test_what_does_not_come_is_named_with_what_did(start):
    driven = start().started()

    with pytest.raises(
        AssertionError,
        match=r"Driven\d+: 1 x handled = 'Fail' did not come within 0 s. It reported \[\{'started': 'Driven\d+'\}\]",
    ):
        driven.wait_for("handled", "Fail", deadline=0.2)


def test_it_ends_with_its_stdin(start):
    driven = start().started()

    driven.process.stdin.close()

    assert driven.process.wait(30) == 0
