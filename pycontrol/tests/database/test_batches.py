"""Several calls in one round trip, on every engine that can be reached."""

import pytest

from rowpost.errors import DatabaseError, InvalidTimeToBeReceived, QueueNotFound


def send(queue, body, **more):
    return ("send_message", queue.name, {"headers": "", "body": body, **more})


def test_calls_of_a_batch_each_return_their_rows(queue, database):
    queue.send(b"first")

    _, received, waiting = database.call_all(
        [
            send(queue, b"second"),
            ("receive_messages", queue.name, {"count": 5}),
            ("peek_queue", queue.name, {"count": 5}),
        ],
        begin=True,
        commit=True,
    )

    assert [row[4] for row in received] == [b"first", b"second"]
    assert waiting == [(0,)]
    assert not database.in_transaction


def test_a_call_of_a_batch_may_have_no_value_but_null(queue, database):
    _, checked = database.call_all([send(queue, b"x"), ("check_queue", None, {"queue_name": None})])

    assert checked == database.call("check_queue", queue_name=None)
    assert queue.peek() == 1


def test_a_batch_without_commit_leaves_its_transaction_open(queue, database):
    database.call_all([send(queue, b"x")], begin=True)

    assert database.in_transaction
    database.rollback()
    assert queue.peek() == 0


def test_a_batch_commits_what_the_transaction_did_before_it(queue, database):
    database.call("receive_messages", queue=queue.name, begin=True, count=1)

    database.call_all([send(queue, b"x"), send(queue, b"y")], commit=True)

    assert not database.in_transaction
    assert queue.peek() == 2


def test_a_failing_call_of_a_batch_undoes_all_of_it(queue, database):
    with pytest.raises(InvalidTimeToBeReceived):
        database.call_all(
            [send(queue, b"good"), send(queue, b"bad", time_to_be_received_ms=0)], begin=True, commit=True
        )

    assert not database.in_transaction
    assert queue.peek() == 0
    queue.send(b"the connection is well")


def test_a_batch_of_several_megabytes_arrives_whole(queue, database):
    body = bytes(20_000)

    database.call_all([send(queue, body) for _ in range(300)], begin=True, commit=True)

    assert [len(message.body) for message in queue.browse(300)] == [20_000] * 300


def test_an_unknown_queue_in_a_batch_is_named(queue, database):
    nowhere = ("send_message", "Nowhere", {"headers": ""})

    with pytest.raises(QueueNotFound, match="Nowhere"):
        database.call_all([send(queue, b"good"), nowhere], begin=True, commit=True)

    assert queue.peek() == 0


def test_calls_survive_what_the_driver_forgets_after_a_rollback(queue, database):
    from rowpost.transport.queue import Queue

    if database.engine != "postgresql":
        pytest.skip("psycopg deallocates every prepared statement after a rollback; pyodbc keeps none")
    for shared in (database, database.driver_connection):
        here = Queue(queue.name, shared)
        here.peek()
        for number in range(10):  # the driver prepares a statement that it has seen five times
            database.driver_connection.execute("SELECT %s::int", (number,))
        with pytest.raises(ZeroDivisionError), database.driver_connection.transaction():
            _ = 1 / 0

        assert here.peek() == 0


def test_a_batch_that_no_socket_takes_at_once_is_sent_to_its_end(queue, database):
    bodies = [bytes([number]) * 3_000_000 for number in range(3)]

    database.call_all([send(queue, body) for body in bodies], begin=True, commit=True)

    assert [message.body == body for message, body in zip(queue.receive(3), bodies, strict=True)] == [True] * 3


@pytest.mark.parametrize(("begin", "commit"), [(True, True), (True, False), (False, False)])
def test_a_batch_beyond_every_limit_of_one_round_trip_stores_each_message_once(queue, database, begin, commit):
    bodies = [str(number).encode() for number in range(500)]

    database.call_all([send(queue, body) for body in bodies], begin=begin, commit=commit)

    if begin and not commit:
        database.commit()
    assert not database.in_transaction
    assert [message.body for message in queue.receive(500)] == bodies


def test_a_long_batch_that_fails_near_its_end_stores_nothing(queue, database):
    calls = [send(queue, b"good") for _ in range(400)]

    with pytest.raises(InvalidTimeToBeReceived):
        database.call_all([*calls, send(queue, b"bad", time_to_be_received_ms=0)], begin=True, commit=True)

    assert not database.in_transaction
    assert queue.peek() == 0


def test_a_batch_to_commit_sends_nothing_where_the_transaction_is_over(queue, database):
    if database.engine != "sqlserver":
        pytest.skip("PostgreSQL's protocol tells whether a transaction is open: the pipeline asks it before")

    with pytest.raises(DatabaseError):
        database.call_all([send(queue, b"x")], commit=True)

    assert queue.peek() == 0
