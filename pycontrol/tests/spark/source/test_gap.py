"""A tail does not skip row versions that are assigned before their transaction commits. Two naive readers do.

`highest` reads up to the highest visible row version. `oldest snapshot` reads up to the highest row version of transactions
that are older than all running ones. It fails because a row version is assigned before its transaction gets its id.
"""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

HIGHEST = 'SELECT coalesce(max(seq), 0) FROM public."{queue}"'
OLDEST_SNAPSHOT = (
    'SELECT coalesce(max(seq), 0) FROM public."{queue}" '
    "WHERE xmin::text::bigint < (pg_snapshot_xmin(pg_current_snapshot())::text::bigint & 4294967295)"
)
SLOW_TRIGGER = """
CREATE FUNCTION public.slow_{queue}() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF new.headers = 'slow' THEN PERFORM pg_sleep({seconds}); END IF; RETURN new; END $$;
CREATE TRIGGER slow BEFORE INSERT ON public."{queue}" FOR EACH ROW EXECUTE FUNCTION public.slow_{queue}();
"""
INSERT = 'INSERT INTO public."{queue}" (id, headers, body) SELECT gen_random_uuid(), %s, NULL FROM generate_series(1, %s)'


class Naive(threading.Thread):
    """A reader that determines an end, reads up to it, and continues from there."""

    def __init__(self, url, queue, end_of):
        super().__init__(daemon=True)
        self.seen, self.ended = set(), threading.Event()
        self._url, self._queue, self._end_of = url, queue, end_of.format(queue=queue)

    def run(self):
        above = 0
        with psycopg.connect(self._url, autocommit=True) as connection:
            while True:
                last_time = self.ended.is_set()
                end = max(connection.execute(self._end_of).fetchone()[0], above)
                found = connection.execute(f'SELECT seq FROM public."{self._queue}" WHERE seq > %s AND seq <= %s', (above, end))
                self.seen.update(row[0] for row in found)
                above = end
                if last_time:
                    return
                time.sleep(0.01)

    def finish(self):
        self.ended.set()
        self.join(60)
        return self.seen


@pytest.fixture
def tail(queues, tmp_path):
    """Start a tail of a queue. The result returns the row versions that the tail has read."""
    queries = []

    def start(queue):
        name = f"gap_{queue}"
        frame = queues.reader(queues.spark.readStream, queue).schema("row_version bigint not null").load()
        query = frame.writeStream.format("memory").queryName(name).option("checkpointLocation", str(tmp_path / name)).start()
        queries.append(query)

        def arrived():
            query.processAllAvailable()
            return [row.row_version for row in queues.spark.table(name).collect()]

        return arrived

    yield start
    for query in queries:
        query.stop()


def committed(queues, queue):
    with queues.connect() as database:
        return {row[0] for row in database.driver_connection.execute(f'SELECT seq FROM public."{queue}"')}


def write(url, queue, rows, seed):
    """Write transactions of a few rows: some stay open, some wait between the assignment and their first write, some roll back."""
    chance = random.Random(seed)
    with psycopg.connect(url) as connection:
        while rows > 0:
            count = min(chance.randint(1, 40), rows)
            slow = chance.random() < 0.04
            connection.execute(INSERT.format(queue=queue), ("slow" if slow else "", 1 if slow else count))
            time.sleep(chance.uniform(0.3, 1.0) if chance.random() < 0.04 else chance.uniform(0, 0.02))
            if chance.random() < 0.05:
                connection.rollback()
                continue
            connection.commit()
            rows -= 1 if slow else count


@pytest.mark.parametrize(
    ("writers", "rows"), [(4, 2500), pytest.param(8, 12500, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])]
)  # fmt: skip
def test_a_tail_misses_nothing_where_naive_readers_do(queues, tail, writers, rows):
    queue = queues.make()
    with queues.connect() as database:
        database.driver_connection.execute(SLOW_TRIGGER.format(queue=queue, seconds=0.2))
    arrived = tail(queue)
    arrived()
    naive = [Naive(queues.url, queue, end_of) for end_of in (HIGHEST, OLDEST_SNAPSHOT)]
    for reader in naive:
        reader.start()

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(lambda seed: write(queues.url, queue, rows, seed), range(writers)))

    there, got = committed(queues, queue), arrived()
    missed = [len(there - reader.finish()) for reader in naive]
    print(f"{len(there)} rows: the tail missed {len(there - set(got))}, highest {missed[0]}, oldest snapshot {missed[1]}")
    assert len(there) == writers * rows
    assert sorted(got) == sorted(there)
    assert all(missed)


def test_a_tail_waits_for_a_row_version_that_is_assigned_before_its_transaction_has_an_id(queues, tail):
    queue = queues.make()
    with queues.connect() as database:
        database.driver_connection.execute(SLOW_TRIGGER.format(queue=queue, seconds=3))
        connection = database.driver_connection
        connection.execute(INSERT.format(queue=queue), ("", 1))
        arrived = tail(queue)
        arrived()
        with ThreadPoolExecutor(1) as pool:

            def slow():
                with psycopg.connect(queues.url, autocommit=True) as other:
                    other.execute(INSERT.format(queue=queue), ("slow", 1))

            writing = pool.submit(slow)
            sequence = f"SELECT pg_sequence_last_value(pg_get_serial_sequence('public.{queue}', 'seq'))"
            while connection.execute(sequence).fetchone()[0] < 2:
                time.sleep(0.01)
            connection.execute(INSERT.format(queue=queue), ("", 1))
            ends = [connection.execute(end_of.format(queue=queue)).fetchone()[0] for end_of in (HIGHEST, OLDEST_SNAPSHOT)]
            during = arrived()
            writing.result()

    assert ends == [3, 3]  # both naive readers would skip row version 2
    assert during == [1]
    assert sorted(arrived()) == [1, 2, 3]
