"""Times that the database holds and Python does not, in every reader of times: infinity, years after 9999 and before 1."""

import copy
import pickle
import random
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from rowpost.dashboard import app
from rowpost.dashboard.access import LoopbackAccess
from rowpost.database.connection import connect
from rowpost.database.moments import DistantTime, moment
from rowpost.settings.environment import QueueSettings, load_settings
from rowpost.transport.delayed import move_due
from rowpost.transport.delayed_messages import DelayedMessages
from rowpost.transport.error_queue import ErrorQueue
from rowpost.transport.partitions import split
from rowpost.wire.message import encode_headers
from tests.support.dashboard import failed_headers, serving
from tests.support.program import Program, program

__all__ = ["program"]  # a fixture

#: what is stored, and how it is shown
LATE = {
    "infinity": "infinity",
    "10000-01-01": "10000-01-01T00:00:00",
    "294276-12-31 23:59:59.5": "294276-12-31T23:59:59.500000",
}
EARLY = {"-infinity": "-infinity", "0044-03-15 12:00:00 BC": "0044-03-15T12:00:00 BC"}
SHOWN = LATE | EARLY


@pytest.fixture(autouse=True)
def on_postgresql(request):
    if "database" in request.fixturenames and request.getfixturevalue("database").engine != "postgresql":
        pytest.skip("SQL Server's times are Python's")


def store(sql, queue, expires, body=b"{}"):
    """Store a failed message as another program does."""
    statement = f"INSERT INTO {sql.table(queue)} (id, expires, headers, body) VALUES (?, ?::timestamp, ?, ?)"
    sql.run(statement, uuid4(), expires, encode_headers(failed_headers()), body)


def delay_until(sql, queue, due, body=b"{}"):
    sql.run(
        f"INSERT INTO {sql.table(queue + '.Delayed')} (headers, body, due) VALUES (?, ?, ?::timestamptz)",
        "{}",
        body,
        due,
    )


# ------------------------------------------------------------------ the value itself
def test_any_time_of_the_server_has_the_servers_text(database, sql):
    texts, chance = ["infinity", "-infinity"], random.Random(35)
    for _ in range(200):
        year, bc = (chance.randrange(1, 294_276), "") if chance.random() < 0.7 else (chance.randrange(1, 4_713), " BC")
        texts.append(f"{year:04}-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02} 12:34:56.789012{bc}")

    for text in texts:
        data = database.driver_connection.execute("SELECT %s::timestamp", (text,), binary=True).pgresult.get_value(0, 0)
        found = moment(int.from_bytes(data, "big", signed=True))
        assert found.isoformat() == text.replace(" ", "T", 1), text


@pytest.mark.parametrize(("microseconds", "bound"), [(2**63 - 1, datetime.max), (-(2**63), datetime.min)])
def test_a_distant_time_compares_as_the_end_of_the_calendar_and_keeps_its_text(microseconds, bound):
    found = moment(microseconds)

    assert isinstance(found, DistantTime)
    assert (found == bound, found.replace(tzinfo=UTC) == bound.replace(tzinfo=UTC)) == (True, True)
    for kept in (
        found.replace(tzinfo=UTC),
        found.replace(tzinfo=UTC).astimezone(),
        copy.deepcopy(found),
        pickle.loads(pickle.dumps(found)),
    ):
        assert {str(kept), kept.isoformat(sep=" "), f"{kept:%Y-%m-%d}", kept.text} == {found.text}
    assert (type(found.replace(year=2026)), found.replace(year=2026).year) == (datetime, 2026)


# ------------------------------------------------------------------ delayed messages
@pytest.mark.parametrize(("due", "text"), SHOWN.items())
def test_one_message_of_a_distant_time_stops_no_other_one(make_queue, database, sql, due, text):
    queue = make_queue()
    delay_until(sql, queue.name, due, b"distant")
    delay_until(sql, queue.name, "2026-01-01", b"due")
    listed = DelayedMessages(queue.name, database).browse()

    moved = move_due(database, queue.name)
    ((_, next_due_ms, *_),) = database.call("watch_queue", queue.name, count=1)

    early = due in EARLY
    assert text in {each.due.isoformat() for each in listed}
    assert [message.body for message in queue.receive(5)] == ([b"distant", b"due"] if early else [b"due"])
    assert (moved.moved, moved.next_due, next_due_ms) == (1 + early, None, None)


def test_a_message_of_a_distant_time_is_rescheduled_and_cancelled(make_queue, database, sql):
    queue = make_queue()
    delayed = DelayedMessages(queue.name, database)
    for due in ("infinity", "10000-01-01"):
        delay_until(sql, queue.name, due)
    first, second = delayed.browse()

    cancelled = delayed.cancel(second.key)
    delayed.reschedule(first.key, timedelta(0))

    assert (first.due.isoformat(), cancelled.due.isoformat()) == ("10000-01-01T00:00:00", "infinity")
    assert move_due(database, queue.name).moved == 1


def test_a_forwarded_message_that_was_due_before_the_calendar_is_forwarded(make_queue, database, sql):
    queue, other = make_queue(), make_queue()
    headers = encode_headers({"NServiceBus.SqlServer.ForwardDestination": other.name})
    sql.run(
        f"INSERT INTO {sql.table(queue.name + '.Delayed')} (headers, body, due) VALUES (?, ?, '-infinity')",
        headers,
        b"x",
    )

    moved = move_due(database, queue.name)

    assert (moved.forwarded, [message.body for message in other.receive(5)]) == (1, [b"x"])


# ------------------------------------------------------------------ messages that expire
@pytest.mark.parametrize(("expires", "text"), SHOWN.items())
def test_a_message_that_expires_at_a_distant_time_is_browsed_retried_and_received(
    make_queue, database, sql, expires, text
):
    failed = make_queue()
    store(sql, failed.name, expires)
    (seen,) = failed.browse(5)
    (message,) = ErrorQueue(database, failed.name).list()

    received = failed.receive(1)

    assert (seen.expires.isoformat(), seen.expired) == (text, expires in EARLY)
    assert message.failed_in == "Sales"
    assert [each.expired for each in received] == [expires in EARLY]


def test_a_split_keeps_that_a_message_never_expires(make_queue, database, sql):
    whole, part = make_queue(), make_queue()
    for expires in LATE:
        store(sql, whole.name, expires)

    split(database, QueueSettings(whole.name, partitions=(part.name,)), lambda message: "1")

    assert [row.expires for row in part.browse(5)] == [None] * len(LATE)


# ------------------------------------------------------------------ commands and pages
@pytest.fixture
def distant(program: Program, monkeypatch) -> Program:
    """The program, with one message for each distant time in the error queue and in Sales, delayed in Sales too."""
    monkeypatch.setenv("SHOP_URL", program.variables["SHOP_URL"])
    with connect(load_settings(program.environment)) as database:
        run = database.driver_connection.execute
        for table in ("error", "Sales", "Sales.Delayed"):
            run(f'DELETE FROM "{table}"')
        for time in SHOWN:
            for table in ("error", "Sales"):
                insert = f'INSERT INTO "{table}" (id, expires, headers, body) VALUES (gen_random_uuid(), %s, %s, %s)'
                run(insert, (time, encode_headers(failed_headers()), b"{}"))
            run(
                'INSERT INTO "Sales.Delayed" (headers, body, due) VALUES (%s, %s, %s)',
                (encode_headers({"NServiceBus.MessageId": f"due {time}"}), b"{}", time),
            )
        database.commit()
    return program


def test_every_command_that_reads_times_shows_them(distant: Program):
    shown = {name: distant(*name.split()) for name in (
        "errors list", "errors list --json", "queue browse Sales", "queue browse Sales --json", "delayed list Sales", "delayed list Sales --json",
        "queue metrics Sales",
    )}  # fmt: skip
    row = shown["errors list --json"].lines[0]["row_version"]
    shown["errors show"] = distant("errors", "show", row)
    shown["message show"] = distant("message", "show", shown["errors list --json"].lines[0]["message_id"])

    shown["message show due"] = distant("message", "show", "due infinity")

    assert {name: (ended.code, ended.err) for name, ended in shown.items() if ended.code} == {}
    assert "infinity " in shown["message show due"].out
    for text in SHOWN.values():
        assert text.replace("T", " ") in shown["queue browse Sales"].out
        assert text.replace("T", " ") in shown["delayed list Sales"].out
        assert text in {each["expires"] for each in shown["queue browse Sales --json"].lines}
        assert text in {each["due"] for each in shown["delayed list Sales --json"].lines}


def test_all_are_retried(distant: Program):
    done = distant("errors", "retry-all", "--yes")

    assert (done.code, distant("errors", "list").out.count("Shop")) == (0, 0)


def test_pages_and_documents_show_them(distant: Program):
    settings = load_settings(distant.environment)

    with serving(app(settings, access=LoopbackAccess())) as browser:
        page, failed, document = (
            browser.text("/queue/Sales"),
            browser.get("/failed").text,
            browser.get("/api/v1/messages", params={"queue": "Sales"}).text,
        )
        answers = {path: browser.get(path).status_code for path in ("/failed", "/queue/error", "/")}

    assert set(answers.values()) == {200}
    assert "ValueError" in failed
    assert all(text in document for text in SHOWN.values())
    assert all(text in page for text in SHOWN.values())


def test_an_archive_holds_the_nearest_time_that_its_readers_have(make_queue, database, sql):
    pytest.importorskip("adbc_driver_postgresql")
    queue = make_queue()
    for expires in (*SHOWN, None):
        store(sql, queue.name, expires)

    chunks = list(database.stream("read_range", queue.name, columns=["expires"], chunk_bytes=1000, above=0, upto=2**40))

    found = [value for chunk in chunks for value in chunk.column("expires").to_pylist()]
    assert found == [datetime.max] * len(LATE) + [datetime.min] * len(EARLY) + [None]
