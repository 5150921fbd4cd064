"""Round trips to SQL Server, counted at the socket; and that nothing that a connection keeps is used when it is stale."""

import pytest
from benchmarks.tds import Request, Splitter, through_proxy

from rowpost.database.connection import Connection, connect_url
from rowpost.database.dialects.sqlserver.session import KEPT_STATEMENTS
from rowpost.errors import DatabaseError, InvalidMessageId
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage

HEADERS = {"NServiceBus.MessageId": "1"}
PREPARED = {"sp_prepexec", "sp_execute"}


@pytest.fixture
def counted(target):
    """A connection to the T-SQL engine through a proxy, and the requests that it makes."""
    if target.settings.engine != "sqlserver":
        pytest.skip("counts TDS, which PostgreSQL does not speak")
    with through_proxy(target.url) as (url, requests), connect_url("sqlserver", url) as database:
        yield database, requests


def batch(text: str) -> bytes:
    headers = (22).to_bytes(4, "little") + bytes(18)
    return headers + text.encode("utf-16-le")


def packet(kind: int, content: bytes, last: bool = True) -> bytes:
    return bytes([kind, int(last)]) + (len(content) + 8).to_bytes(2) + bytes(4) + content


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_stream_of_tds_is_split_into_requests_however_it_arrives(size):
    tls = b"\x17\x03\x03\x00\x05hello"
    content = batch("SELECT 1;")
    rpc = (22).to_bytes(4, "little") + bytes(18) + b"\xff\xff\x0d\x00" + bytes(9)
    stream = (
        packet(18, b"prelogin") + tls + packet(1, content[:30], last=False) + packet(1, content[30:]) + packet(3, rpc)
    )
    splitter = Splitter()

    found = [
        request for start in range(0, len(stream), size) for request in splitter.feed(stream[start : start + size])
    ]

    assert found == [Request("SQLBatch", "SELECT 1;"), Request("RPC", "sp_prepexec")]


def test_a_proxy_refuses_an_encrypted_connection():
    with pytest.raises(ValueError, match="Encrypt=no"), through_proxy("Server=localhost;Encrypt=yes"):
        pass


def test_a_send_is_one_round_trip(counted):
    database, requests = counted
    queue = Queue("Sales", database)
    queue.send(b"1", HEADERS)
    requests.clear()

    queue.send(b"2", HEADERS)
    queue.send(b"x" * 1_000_000, HEADERS)

    assert [request.kind for request in requests] == ["RPC", "RPC"]
    assert {request.text for request in requests} <= PREPARED


def test_a_batch_of_sends_is_one_round_trip(counted):
    database, requests = counted
    queue = Queue("Sales", database)
    requests.clear()

    queue.send_many([OutgoingMessage(b"x" * 500, dict(HEADERS)) for _ in range(100)])

    assert [request.kind for request in requests] == ["RPC"]


def receive(database):
    """Receive from the start of an empty queue, and roll back: two round trips."""
    database.call("receive_messages", "Sales", begin=True, count=10)
    database.rollback()


def test_receives_above_different_row_versions_have_the_same_texts(counted):
    database, requests = counted
    receive(database)  # the first BEGIN of a session looks at its state
    requests.clear()

    for after in range(1, 6):
        database.call("receive_messages", "Sales", begin=True, count=10, after_row_version=after)
        database.commit()

    texts = {request.text for request in requests if request.kind == "SQLBatch"}
    assert len(requests) == 15
    assert len(texts) == 2  # BEGIN and COMMIT
    assert not any("after_row_version" in text for text in texts)


def test_the_begin_after_a_handler_cleans_the_session_in_the_same_round_trip(counted):
    database, requests = counted
    receive(database)
    database.reset_session({"session"})
    requests.clear()

    receive(database)
    clean = [request.kind for request in requests]
    database.driver_connection.execute("SET NOCOUNT ON; SET DATEFIRST 3;").close()
    requests.clear()
    receive(database)

    assert clean == ["SQLBatch", "SQLBatch"]
    assert [request.kind for request in requests] == ["SQLBatch", "SQLBatch", "SQLBatch"]
    assert "SET LANGUAGE" in requests[1].text and "SET NOCOUNT OFF" in requests[1].text


def test_a_receive_from_the_start_begins_in_the_same_round_trip(counted):
    database, requests = counted
    requests.clear()

    database.call("receive_messages", "Sales", begin=True, count=10)
    database.rollback()

    assert [request.kind for request in requests] == ["SQLBatch", "SQLBatch"]
    assert "BEGIN TRANSACTION" in requests[0].text and "receive_messages:Sales" in requests[0].text


def test_sends_with_begin_and_commit_are_one_round_trip(counted):
    database, requests = counted
    values = {"headers": "{}", "body": b"1"}
    calls = [("send_message", name, values) for name in ("Sales", "Billing")]
    database.call_all(calls, begin=True, commit=True)
    requests.clear()

    database.call_all(calls, begin=True, commit=True)

    assert [request.kind for request in requests] == ["RPC"]


def test_a_session_keeps_a_bounded_number_of_statements(counted):
    database, _ = counted
    session = database._session

    for number in range(KEPT_STATEMENTS + 10):
        session.run(f"SELECT {number}, ?;", [(4, 0, 0)], [number])

    assert len(session._cursors) == KEPT_STATEMENTS


def test_a_kept_statement_returns_the_columns_that_it_has_now(target, counted):
    database, _ = counted
    session = database._session
    another = target.connect()
    define = "CREATE PROCEDURE dbo.round_trips @n int AS SELECT {};"
    another.driver_connection.execute(define.format("@n AS a")).close()
    call = ("EXEC dbo.round_trips @n = ?;", [(4, 0, 0)], [5])

    before = session.run(*call)
    another.driver_connection.execute("DROP PROCEDURE dbo.round_trips;").close()
    another.driver_connection.execute(define.format("N'other' AS b, @n + 1 AS a")).close()
    after = session.run(*call)
    another.driver_connection.execute("DROP PROCEDURE dbo.round_trips;").close()

    another.close()

    assert [tuple(row) for row in before[0]] == [(5,)]
    assert [tuple(row) for row in after[0]] == [("other", 6)]


def test_a_kept_statement_works_after_an_error_and_after_a_rollback(counted):
    database, _ = counted
    key = {"endpoint": "E", "message_id": "round-trips"}
    database.call("find_handled", **key)
    with pytest.raises(InvalidMessageId):
        database.call("find_handled", endpoint="E", message_id="")
    with pytest.raises(RuntimeError), database.transaction():
        database.call("find_handled", **key)
        raise RuntimeError

    assert len(database.call("find_handled", **key)) <= 1
    assert database.in_transaction is False


def test_a_lost_connection_is_unavailable_and_a_new_one_starts_anew(target, counted):
    database, _ = counted
    queue = Queue("Sales", database)
    queue.send(b"1", HEADERS)
    database.driver_connection.close()

    with pytest.raises(DatabaseError):
        queue.send(b"2", HEADERS)
    with target.connect() as another:
        Queue("Sales", another).send(b"3", HEADERS)

        assert another.closed is False


def test_a_lent_connection_without_autocommit_is_joined(target, counted):
    """A SELECT without a row would not have to start the driver's transaction."""
    database, requests = counted
    lent = database.driver_connection
    lent.autocommit = False
    try:
        shared = Connection.share(lent)

        joined = shared.join()

        assert (joined, shared.in_transaction) == (True, True)
        assert (
            lent.execute("UPDATE rowpost.version SET tool_version = tool_version;").rowcount == 1
        )  # counts rows as before
        lent.rollback()
    finally:
        lent.autocommit = True


def test_a_lent_connection_whose_transaction_was_ended_in_tsql_is_refused(target):
    if target.settings.engine != "sqlserver":
        pytest.skip("drivers of PostgreSQL know the state of the transaction")
    with target.connect() as database:
        lent = database.driver_connection
        lent.autocommit = False
        lent.execute("SELECT 1;").close()
        lent.execute("COMMIT TRANSACTION;").close()

        with pytest.raises(DatabaseError, match="COMMIT or ROLLBACK in T-SQL"):
            Connection.share(lent).join()
