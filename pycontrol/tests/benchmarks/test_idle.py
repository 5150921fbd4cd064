"""What an idle queue costs is counted by what each statement does: a peek, or the supervisor's report in the same round trip."""

import doctest
import tempfile
from pathlib import Path

import pytest
from benchmarks.suite.figures import OURS, Line, Lines
from benchmarks.suite.server import Server
from benchmarks.suite.workers import HANDLERS, running
from benchmarks.suite.workloads import idle

from tests.support.workers import eventually

pytestmark = pytest.mark.bench

LOG = b"""2026-11-24 23:59:01 UTC [1] LOG:  execute <unnamed>: SELECT waiting FROM rowpost."watch_queue:Sales"($1::integer)
2026-11-24 23:59:01 UTC [1] DETAIL:  parameters: $1 = '1000'
2026-11-24 23:59:01 UTC [1] LOG:  execute _pg3_1: SELECT rowpost.report_supervisor($1::uuid)
2026-11-24 23:59:02 UTC [1] LOG:  statement: BEGIN
2026-11-24 23:59:02 UTC [1] LOG:  execute <unnamed>: SELECT moved FROM rowpost."move_due_messages:Sales"($1::integer)
2026-11-24 23:59:02 UTC [1] LOG:  statement: COMMIT
2026-11-24 23:59:03 UTC [1] LOG:  checkpoint starting: time
"""


def test_statements_are_counted_by_what_they_do():
    assert idle.counted(LOG) == {"peeks": 1, "reports": 1, "others": 1, "BEGIN, COMMIT": 2}
    assert sum(idle.counted(b"").values()) == 0
    assert doctest.testmod(idle).failed == 0


def test_targets_are_one_peek_a_queue_and_one_report_in_ten_seconds():
    line = Line("100 idle queues", OURS, (100.1,), more={"peeks": 100.0, "reports": 0.1, "others": 0.0})
    peeks, reports, others = idle.targets(Lines([line]))

    assert (peeks.figure, reports.figure, others.figure) == (pytest.approx(1.0), pytest.approx(1.0), 0.0)
    assert [each.reached for each in (peeks, others)] == [True, True]
    assert [each.verdict for each in idle.targets(Lines([]))] == ["not measured"] * 3


@pytest.mark.parametrize("more", [{}, {"metrics": 0}], ids=["plain", "with metrics"])
def test_an_idle_supervisor_makes_no_other_statement_than_peeks_and_reports(more):
    with tempfile.TemporaryDirectory(prefix="rowpost-", ignore_cleanup_errors=True) as folder:
        server = Server(Path(folder))
        try:
            with server.place("idle", "Idle") as place:
                idle._log_statements(place)
                # a lateness that a busy machine does not reach: the mover waits for the peeks
                supervisor = {"delayed_lateness": 60.0, "maintenance_every": 0.0, **more}
                with running(
                    place, Path(folder), {"Idle": {"handler": f"{HANDLERS}:nothing", "limit": 1}}, supervisor=supervisor
                ):
                    eventually(
                        lambda: idle.counted(server.log.read_bytes())["peeks"] >= 12,
                        "the quick peeks after the start are over",
                    )
                    begun = server.log.stat().st_size

                    def since() -> dict[str, int]:
                        return idle.counted(server.log.read_bytes()[begun:])

                    eventually(
                        lambda: since()["peeks"] >= 3 and since()["reports"] >= 1, "it has peeked and reported", 60
                    )
                    found = since()
        finally:
            server.stop()

    assert (found["others"], found["BEGIN, COMMIT"]) == (0, 0)
    assert found["reports"] < found["peeks"]
