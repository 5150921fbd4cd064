"""mode=log: messages from PostgreSQL's log, also those that live for milliseconds; where a run continues, and what is a batch."""

import json
import threading
import uuid

import pytest

from rowpost.database.connection import connect_url
from rowpost.spark.source.checkpoint import committed_offset, finalize
from tests.support.spark.logs import numbered, pass_through, slots

INSERT = "INSERT INTO public.\"{}\" (id, headers, body) SELECT gen_random_uuid(), '{{}}', convert_to(n::text, 'UTF8') FROM generate_series(%s::int, %s) AS n"


@pytest.fixture
def begun(queues, run):
    """A queue whose stream has been started, so that its slot exists."""
    queue = queues.make(publication=True)
    assert run(queue) == []
    return queue


def test_messages_that_live_for_milliseconds_all_arrive(queues, begun, run):
    pass_through(queues, begun, numbered(0, 200))

    assert run(begun) == list(range(200))
    assert queues.depth(begun) == 0


def test_a_running_stream_reads_messages_that_are_received_meanwhile(queues, begun, tmp_path):
    name = f"log_{begun}"
    frame = queues.stream(begun, mode="log")
    query = frame.writeStream.format("memory").queryName(name).option("checkpointLocation", str(tmp_path / "memory")).start()
    try:
        senders = [threading.Thread(target=pass_through, args=(queues, begun, numbered(start, start + 150))) for start in (0, 150)]
        for each in senders:
            each.start()
        query.processAllAvailable()
        for each in senders:
            each.join()
        query.processAllAvailable()
    finally:
        query.stop()

    assert sorted(int(bytes(row.body)) for row in queues.spark.table(name).collect()) == list(range(300))


def test_a_stream_goes_on_where_the_last_run_ended_and_takes_nothing_from_the_queue(queues, begun, run):
    queues.send(begun, numbered(0, 50))
    first = run(begun)
    nothing_new = run(begun)
    queues.send(begun, numbered(50, 80))

    assert (first, nothing_new, run(begun)) == (list(range(50)), list(range(50)), list(range(80)))
    assert queues.depth(begun) == 80


def test_what_was_sent_before_the_slot_is_not_read(queues, run):
    queue = queues.make(publication=True)
    queues.send(queue, numbered(0, 5))
    run(queue)
    queues.send(queue, numbered(5, 8))

    assert run(queue) == [5, 6, 7]


def test_only_what_is_committed_arrives_and_once(queues, begun, run, connection):
    connection.execute("BEGIN")
    connection.execute(INSERT.format(begun), (0, 9))
    connection.execute("ROLLBACK")
    with connection.transaction():
        connection.execute(INSERT.format(begun), (10, 11))
        connection.execute("SAVEPOINT s")
        connection.execute(INSERT.format(begun), (12, 15))
        connection.execute("ROLLBACK TO SAVEPOINT s")
        connection.execute(INSERT.format(begun), (16, 17))
    for name, last in (("kept", "COMMIT"), ("given up", "ROLLBACK")):
        connection.execute("BEGIN")
        connection.execute(INSERT.format(begun), (20, 22))
        connection.execute(f"PREPARE TRANSACTION '{name} {begun}'")
        before = run(begun)
        connection.execute(f"{last} PREPARED '{name} {begun}'")
        if last == "COMMIT":
            assert before == [10, 11, 16, 17]

    assert run(begun) == [10, 11, 16, 17, 20, 21, 22]


def test_a_long_transaction_holds_back_only_itself(queues, begun, run):
    """Its commit gets a later position than all that is read before, so that there is no gap to wait for."""
    with connect_url("postgresql", queues.url) as database:
        database.begin()
        database.driver_connection.execute(INSERT.format(begun), (0, 9))
        queues.send(begun, numbered(10, 20))
        during = run(begun)
        database.commit()

    assert during == list(range(10, 20))
    assert run(begun) == list(range(20))


def test_all_columns_are_those_of_the_table(queues, begun, tmp_path, connection):
    insert = f'INSERT INTO public."{begun}" (id, expires, headers, body) VALUES (%s, %s, %s, %s)'
    rows = [
        ("2026-01-01 12:00:00.123456", '{"a": "Grüße, 你好 \U0001f600"}', b"x"),
        (None, "", None),
        ("9998-12-31", "{}", b""),
        ("0001-01-01", "h" * 300_000, bytes(range(256)) * 4096),
    ]
    for expires, headers, body in rows:
        connection.execute(insert, (uuid.uuid4(), expires, headers, body))
    name = f"columns_{begun}"
    query = (
        queues.stream(begun, mode="log").writeStream.format("memory").queryName(name)
        .option("checkpointLocation", str(tmp_path / "memory")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()

    from_log, from_table = (
        sorted(frame.drop("expires").collect(), key=lambda row: row.row_version) for frame in (queues.spark.table(name), queues.read(begun))
    )
    times = [
        sorted(row.at for row in frame.selectExpr("cast(expires as string) at").where("at is not null").collect())
        for frame in (queues.spark.table(name), queues.read(begun))
    ]
    assert from_log == from_table
    assert len(from_log) == 4
    assert times[0] == times[1]


def test_a_schema_with_fewer_columns_is_read(queues, begun, tmp_path):
    queues.send(begun, numbered(0, 3), headers='{"a": "b"}')
    name = f"few_{begun}"
    frame = queues.reader(queues.spark.readStream, begun, mode="log").schema("row_version bigint not null, headers string not null").load()
    frame.writeStream.format("memory").queryName(name).option("checkpointLocation", str(tmp_path / "memory")).trigger(
        availableNow=True
    ).start().awaitTermination()

    assert sorted(queues.spark.table(name).collect()) == [(number, '{"a": "b"}') for number in (1, 2, 3)]


def test_bodies_of_a_megabyte_arrive_in_batches_that_fit_into_memory(queues, begun, run, connection):
    """Of 40 MB in one transaction; the server keeps it in a file while it decodes it."""
    connection.execute(
        f"INSERT INTO public.\"{begun}\" (id, headers, body) SELECT gen_random_uuid(), '{{}}', convert_to(lpad(n::text, 1000000), 'UTF8') FROM generate_series(1, 40) AS n"
    )
    connection.execute(f'DELETE FROM public."{begun}"')

    assert run(begun, maxBytesPerBatch=2_000_000) == list(range(1, 41))


def test_several_queues_are_read_in_one_stream_also_if_one_transaction_writes_to_them(queues, run, connection):
    one, two, other = (queues.make(publication=True) for _ in range(3))
    assert run(subscribe=f"{one},{two}") == []
    with connection.transaction():
        for queue, first in ((one, 0), (two, 5), (other, 90)):
            connection.execute(INSERT.format(queue), (first, first + 4))
    pass_through(queues, two, numbered(10, 13))

    assert run(subscribe=f"{one},{two}") == list(range(13))
    rows = queues.spark.read.parquet(str(run.folder / "out")).collect()
    assert {row.queue: sorted(int(bytes(each.body)) for each in rows if each.queue == row.queue) for row in rows} == {
        one: list(range(5)),
        two: list(range(5, 13)),
    }
    assert run.batches == [13]


# ------------------------------------------------------------------------------------------------ batches
def test_a_batch_has_whole_transactions_up_to_the_limit(queues, begun, run, connection):
    for first in range(0, 50, 5):
        connection.execute(INSERT.format(begun), (first, first + 4))

    assert run(begun, maxOffsetsPerTrigger=12) == list(range(50))
    assert run.batches == [10] * 5


def test_a_transaction_is_never_cut(queues, begun, run, connection):
    connection.execute(INSERT.format(begun), (0, 99))
    connection.execute(INSERT.format(begun), (100, 104))

    assert run(begun, maxOffsetsPerTrigger=12) == list(range(105))
    assert run.batches == [100, 5]


def test_a_scan_is_continued_where_the_last_one_stopped(queues, begun, run, connection, monkeypatch):
    from rowpost.spark.source.log import LogReader
    from rowpost.spark.source.source import QueueSource

    for first in range(0, 40, 2):
        connection.execute(INSERT.format(begun), (first, first + 1))
    monkeypatch.setattr("rowpost.spark.source.log.AHEAD_MESSAGES", 10)
    source = QueueSource({"queue": begun, "environment": queues.environment, "mode": "log", "maxOffsetsPerTrigger": "4"})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, LogReader)
    position, read, lags = committed_offset(run.folder / "checkpoint") or reader.initialOffset(), [], []
    while (end := reader.latestOffset(position, reader.getDefaultReadLimit())) != position:
        lags.append(reader.reportLatestOffset()["lag_messages"])
        (part,) = reader.partitions(position, end)
        read.append([int(body.as_py()) for batch in reader.read(part) for body in batch["body"]])
        position = end
    reader.stop()

    assert read == [list(range(first, first + 4)) for first in range(0, 40, 4)]
    assert lags[-1] == 0 and max(lags) <= 10


# ------------------------------------------------------------------------------------------------ the slot
def test_the_slot_is_confirmed_only_up_to_what_spark_has_committed(queues, begun, run):
    (before,) = slots(queues).values()
    queues.send(begun, numbered(0, 5))
    run(begun)
    after_run, committed = slots(queues), committed_offset(run.folder / "checkpoint")

    finalize({"queue": begun, "environment": queues.environment}, run.folder / "checkpoint")

    assert after_run == {committed["slot"]: before}
    assert slots(queues) == {committed["slot"]: committed["log"]}
    assert finalize({"queue": begun, "environment": queues.environment}, run.folder / "checkpoint") == 0
    queues.send(begun, numbered(5, 7))
    assert run(begun) == list(range(7))


def test_a_batch_that_was_not_committed_is_read_again_the_same(queues, begun, run):
    queues.send(begun, numbered(0, 30))
    run(begun)
    for folder in ("checkpoint/commits", "out/_spark_metadata"):  # as if the run was killed before its commit
        names = [path for path in (run.folder / folder).iterdir() if path.name.isdecimal()]
        last = max(names, key=lambda path: int(path.name))
        for path in (last, last.with_name(f".{last.name}.crc")):
            path.unlink()
    queues.send(begun, numbered(30, 40))

    assert run(begun) == list(range(40))
    assert run.batches == [30, 10]


def test_the_log_of_other_tables_does_not_stay_because_a_queue_is_idle(queues, begun, run, connection):
    (before,) = slots(queues).values()
    connection.execute("CREATE TABLE IF NOT EXISTS other (t text)")
    connection.execute("INSERT INTO other SELECT repeat(md5(n::text), 30) FROM generate_series(1, 40000) AS n")
    run(begun)
    finalize({"queue": begun, "environment": queues.environment}, run.folder / "checkpoint")
    (after,) = slots(queues).values()
    moved = connection.execute("SELECT pg_wal_lsn_diff(%s, %s)", (after, before)).fetchone()[0]
    files = len(list((run.folder / "checkpoint" / "commits").glob("[0-9]*")))
    run(begun)

    assert moved > 30_000_000
    assert len(list((run.folder / "checkpoint" / "commits").glob("[0-9]*"))) == files  # without a message and without much log there is no batch


def test_the_offset_has_no_secret_and_names_server_slot_and_queue(queues, begun, run):
    queues.send(begun, numbered(0, 1))
    run(begun)

    offset = json.loads((run.folder / "checkpoint" / "offsets" / "0").read_text().splitlines()[2])
    assert sorted(offset) == ["log", "queues", "slot", "system", "timeline"]
    assert offset["slot"] == f"rowpost_postgres_{begun}"
    assert list(offset["queues"]) == [begun]


def test_the_lag_is_told_in_messages_seconds_and_bytes(queues, begun, run, tmp_path):
    from rowpost.spark.progress import Measured

    for first in range(0, 30, 10):
        queues.send(begun, numbered(first, first + 10))
    query = (
        queues.stream(begun, mode="log", maxOffsetsPerTrigger=10).writeStream.format("noop")
        .option("checkpointLocation", str(run.folder / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()

    found = [Measured.of(json.loads(each.json)) for each in query.recentProgress]
    assert [(each.rows, each.lag_messages) for each in found[:3]] == [(10, 20), (10, 10), (10, 0)]
    assert [each.lag_seconds > 0 for each in found[:3]] == [True, True, False]
    assert found[0].lag_bytes > found[1].lag_bytes > found[2].lag_bytes >= 0
    assert {each.held_by for each in found} == {()}
