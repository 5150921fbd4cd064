"""What real workers do on a real server, through kills and failures, is what the models allow.

Recorded events of each process are followed by the model. A forged record is refused.
"""

import json
import signal
from pathlib import Path
from uuid import UUID

import pytest

from rowpost.database.connection import connect_url
from rowpost.errors import RowpostError
from rowpost.recoverability.policy import plain_recoverability
from rowpost.recoverability.retries import Retries
from rowpost.settings.engine import engine_of
from rowpost.settings.worker import FunctionRetries
from rowpost.transport.queue import Queue
from rowpost.wire.address import parse_address, queue_key
from tests.support.crashing import TYPE
from tests.support.recorded import POISON, RETRIES, SUPERVISOR, Recorder, include_file, kinds, read_events, spawn
from tests.support.spin import MODELS, Check, missing_program, search
from tests.support.workers import eventually

needs_spin = pytest.mark.skipif(missing_program() is not None, reason=f"{missing_program()} is not installed")
DEADLINE_S = 120
#: steps after which a worker is killed: events, and the start of a handler
STEPS = range(1, 8)
REPEATED = {"NServiceBus.EnclosedMessageTypes": TYPE, "NServiceBus.MessageId": "repeated"}


def accepted(model: str, events, folder: Path, *defines: str) -> bool:
    """Return whether a model allows the events."""
    (folder / "trace.pml").write_text(include_file(events, MODELS / f"{model}.pml"), encoding="utf-8")
    kills = sum(kind == "KILLED" for each in events for kind, _ in each)
    result = search(Check(model, (f"FAULTS={kills}", *defines)), folder, include="trace.pml")
    assert result.complete if result.errors == 0 else "assertion violated 0" in result.output, result.output
    return result.errors == 1


class Runs:
    """Runs of workers on one queue, and their records."""

    def __init__(self, target, queue, sql, folder):
        self.target, self.queue, self.sql, self.folder = target, queue, sql, folder

    def send(self, *bodies, headers=None):
        for body in bodies:
            self.queue.send(body, headers)
        self.rows = [each.row_version for each in self.queue.browse()]

    def spawn(self, model, number, die_at=None, **options):
        return spawn(model, self.target.url, self.queue.name, self.folder, number, self.rows, die_at=die_at, **options)

    def treat_crash(self, number):
        """Do what the supervisor does about a worker that died with a message in flight."""
        text = (
            (self.folder / f"in-flight-{number}").read_text() if (self.folder / f"in-flight-{number}").exists() else ""
        )
        if not text:
            return
        row_id, row_version = json.loads(text)
        key = queue_key(parse_address(self.queue.name), self.target.settings.engine)
        retries = Retries(
            self.queue.name,
            key,
            recoverability=plain_recoverability(FunctionRetries(RETRIES + 1)),
            address=self.queue.name,
            error_queue="error",
        )
        with Recorder(self.folder / f"worker-{SUPERVISOR}", self.rows) as recorder, self.target.connect() as database:
            recorder.counts_for(self.rows.index(row_version))
            retries.crashed(database, UUID(row_id), row_version, RowpostError("killed"))

    def wait_until_rolled_back(self, number):
        """Wait until the server has ended the sessions of a dead worker: the model's next worker starts after that."""
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = ?"
        dead, business = f"rowpost tests recorded {number}", f"rowpost outbox {self.queue.name}"
        eventually(
            lambda: self.sql.value(sessions, dead) == 0 and self.sql.value(sessions, business) <= 1, "rolled back"
        )

    @property
    def events(self):
        return read_events(self.folder)


@pytest.fixture
def runs(target, make_queue, sql, tmp_path):
    if target.settings.engine != "postgresql":
        pytest.skip("events are recorded on PostgreSQL, whose driver knows whether a transaction is open")
    sql.empty("error")
    sql.empty("Billing")
    return Runs(target, make_queue(), sql, tmp_path)


@needs_spin
@pytest.mark.parametrize("die_at", [None, *STEPS])
def test_workers_that_fail_and_are_killed_follow_the_model_of_receiving(runs, die_at):
    runs.send(b"good", POISON)
    first, second = runs.spawn("receive", 0, die_at), runs.spawn("receive", 1)
    if die_at is not None and first.wait(DEADLINE_S) == -signal.SIGKILL:
        runs.treat_crash(0)
        runs.wait_until_rolled_back(0)
        first = runs.spawn("receive", 0)

    assert [first.wait(DEADLINE_S), second.wait(DEADLINE_S)] == [0, 0]
    assert accepted("receive", runs.events, runs.folder), runs.events


@needs_spin
@pytest.mark.parametrize("pessimistic", [False, True], ids=["optimistic", "pessimistic"])
@pytest.mark.parametrize("die_at", [None, *STEPS])
def test_workers_that_are_killed_follow_the_model_of_the_outbox(runs, business_url, die_at, pessimistic):
    with connect_url(engine_of(business_url), business_url) as business:
        for table in ("business", "rowpost.outbox", "rowpost.outbox_operations"):
            business.driver_connection.execute(f"DELETE FROM {table}")
    runs.send(*[b'{"Number":1}'] * 2, headers=REPEATED)
    options = {"business": business_url, "pessimistic": pessimistic}
    first, second = runs.spawn("outbox", 0, die_at, **options), runs.spawn("outbox", 1, **options)
    if first.wait(DEADLINE_S) == -signal.SIGKILL:
        runs.wait_until_rolled_back(0)
        first = runs.spawn("outbox", 0, **options)

    assert [first.wait(DEADLINE_S), second.wait(DEADLINE_S)] == [0, 0]
    assert Queue("Billing", runs.queue.database).peek() == 1
    assert accepted("outbox", runs.events, runs.folder, *(["PESSIMISTIC"] if pessimistic else [])), runs.events


GOOD = [("RECEIVED", 0), ("HANDLED", 0)]
TWICE = [("RECEIVED", 1), ("COUNTED", 1), ("ROLLED_BACK", 1), ("RECEIVED", 1), ("COUNTED", 1), ("MOVED", 1)]
RESTARTED = [
    ("RECEIVED", 1),
    ("KILLED", 0),
    ("RECEIVED", 1),
    ("COUNTED", 1),
    ("ROLLED_BACK", 1),
    ("RECEIVED_AGAIN", 1),
    ("MOVED", 1),
]
OUTBOX = [
    ("RECEIVED", 0),
    ("UNKNOWN", 0),
    ("STORED", 0),
    ("SENT", 0),
    ("RECEIVED", 1),
    ("KNOWN_UNSENT", 0),
    ("REMOVED", 0),
]
OUTBOX_END = [("SETTLED", 0), ("FORGOTTEN", 0)]
OUTBOX_FIRST = [*OUTBOX[:4], *OUTBOX_END]
SENT_BEFORE = [("RECEIVED", 1), ("KNOWN_UNSENT", 0), ("SENT_BEFORE", 0), ("SETTLED", 0)]
DUPLICATE_LAST = [*SENT_BEFORE, ("RECEIVED", 1), ("KNOWN_SENT", 0), ("REMOVED", 0)]


@needs_spin
@pytest.mark.parametrize(
    ("model", "events", "allowed"),
    [
        pytest.param("receive", [[*GOOD, *TWICE], [], []], True, id="a message handled and one moved"),
        pytest.param("receive", [GOOD, TWICE, []], True, id="by two workers"),
        pytest.param("receive", [[*GOOD, *TWICE], GOOD, []], False, id="a message handled twice"),
        pytest.param("receive", [[*GOOD, *TWICE[:1], *TWICE[2:]], [], []], False, id="an attempt that was not counted"),
        pytest.param("receive", [[*GOOD, *TWICE[3:]], [], []], False, id="a move after one attempt"),
        pytest.param(
            "receive", [[*GOOD, *TWICE], [], [("COUNTED", 1)]], False, id="a count of the supervisor without a kill"
        ),
        pytest.param("receive", [[*GOOD, *RESTARTED], [], [("COUNTED", 1)]], True, id="a counted kill"),
        pytest.param("receive", [[*GOOD, *RESTARTED], [], []], False, id="a kill that was not counted"),
        pytest.param(
            "receive",
            [[*TWICE[:3], ("KILLED", 0)], [*GOOD, *TWICE], [("COUNTED", 1)]],
            True,
            id="killed before the move",
        ),
        pytest.param("outbox", [[*OUTBOX, *OUTBOX_END], [], []], True, id="a message sent and a duplicate removed"),
        pytest.param(
            "outbox", [[*DUPLICATE_LAST, ("KILLED", 0)], OUTBOX_FIRST, []], True, id="killed after the last message"
        ),
        pytest.param(
            "outbox", [[*OUTBOX, *OUTBOX_END, ("KILLED", 0)], [], []], True, id="killed with nothing left to do"
        ),
        pytest.param("outbox", [[*OUTBOX[:4], ("SENT", 0)], [], []], False, id="operations sent twice"),
        pytest.param(
            "outbox", [[*OUTBOX[:2], *OUTBOX[3:], *OUTBOX_END], [], []], False, id="operations sent and not stored"
        ),
        pytest.param("outbox", [[*OUTBOX, *reversed(OUTBOX_END)], [], []], False, id="a dispatch forgotten too early"),
    ],
)
def test_a_forged_record_is_refused(model, events, allowed, tmp_path):
    assert accepted(model, events, tmp_path) is allowed


def test_the_events_of_a_recorded_run_are_those_of_the_model(tmp_path):
    (tmp_path / "worker-0").write_text("RECEIVED 1\nKILLED 0\n")

    assert read_events(tmp_path) == [[("RECEIVED", 1), ("KILLED", 0)], [], []]
    assert {"RECEIVED", "COUNTED", "MOVED", "KILLED"} <= kinds(MODELS / "receive.pml").keys()
