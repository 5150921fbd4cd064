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

from tests.support.spark.engine import Engine

HIGHEST = 'SELECT coalesce(max(seq), 0) FROM public."{queue}"'
OLDEST_SNAPSHOT = (
    'SELECT coalesce(max(seq), 0) FROM public."{queue}" '
    "WHERE xmin::text::bigint < (pg_snapshot_xmin(pg_current_snapshot())::text::bigint & 4294967295)"
)
SLOW_TRIGGER = """
CREATE FUNCTION public.slow_{queue}() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF new.headers = 'slow' THEN PERFORM {waits}; END IF; RETURN new; END $$;
CREATE TRIGGER slow BEFORE INSERT ON public."{queue}" FOR EACH ROW EXECUTE FUNCTION public.slow_{queue}();
"""
INSERT = (
    'INSERT INTO public."{queue}" (id, headers, body) SELECT gen_random_uuid(), %s, NULL FROM generate_series(1, %s)'
)


class Reader(threading.Thread):
    """A reader in a thread of its own. `poll` is called again and again, and once more at the end."""

    def __init__(self):
        super().__init__(daemon=True)
        self.seen, self._over = [], threading.Event()

    def run(self):
        last_time = False
        while not last_time:
            last_time = self._over.is_set()
            self.poll()
            time.sleep(0.01)

    def poll(self):
        raise NotImplementedError

    def finish(self):
        """Return the row versions that it has read."""
        self._over.set()
        self.join(60)
        return self.seen


class Naive(Reader):
    """A reader that determines an end, reads up to it, and continues from there."""

    def __init__(self, url, queue, end_of):
        super().__init__()
        self._queue, self._end_of, self._above = queue, end_of.format(queue=queue), 0
        self._connection = psycopg.connect(url, autocommit=True)

    def poll(self):
        end = max(self._connection.execute(self._end_of).fetchone()[0], self._above)
        found = self._connection.execute(
            f'SELECT seq FROM public."{self._queue}" WHERE seq > %s AND seq <= %s', (self._above, end)
        )
        self.seen += [row[0] for row in found]
        self._above = end

    def finish(self):
        with self._connection:
            return super().finish()


class Tail(Reader):
    """The tail of a queue, as Spark runs it."""

    def __init__(self, environment, queue):
        super().__init__()
        self._engine = Engine(environment)
        self._reader = self._engine.reader(queue=queue, columns="row_version")
        self.poll()

    def poll(self):
        while (rows := self._engine.batch(self._reader)) is not None:
            self.seen += [row["row_version"] for row in rows]

    def finish(self):
        found = super().finish()
        self.close()
        return found

    def close(self):
        self._reader.stop()


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
    ("writers", "rows"), [(4, 1500), pytest.param(8, 12500, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])]
)  # fmt: skip
def test_a_tail_misses_nothing_where_naive_readers_do(queues, writers, rows):
    queue = queues.make()
    with queues.connect() as database:
        database.driver_connection.execute(SLOW_TRIGGER.format(queue=queue, waits="pg_sleep(0.2)"))
    tail, *naive = readers = [
        Tail(queues.environment, queue),
        *(Naive(queues.url, queue, end_of) for end_of in (HIGHEST, OLDEST_SNAPSHOT)),
    ]
    for reader in readers:
        reader.start()

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(lambda seed: write(queues.url, queue, rows, seed), range(writers)))

    there, got = committed(queues, queue), tail.finish()
    missed = [len(there - set(reader.finish())) for reader in naive]
    print(
        f"{len(there)} rows: the tail missed {len(there - set(got))}, highest {missed[0]}, oldest snapshot {missed[1]}"
    )
    assert len(there) == writers * rows
    assert sorted(got) == sorted(there)
    assert all(missed)


def test_a_tail_waits_for_a_row_version_that_is_assigned_before_its_transaction_has_an_id(queues):
    queue = queues.make()
    with queues.connect() as database:
        database.driver_connection.execute(SLOW_TRIGGER.format(queue=queue, waits="pg_advisory_xact_lock(36)"))
        connection = database.driver_connection
        connection.execute(INSERT.format(queue=queue), ("", 1))
        tail = Tail(queues.environment, queue)
        connection.execute("SELECT pg_advisory_lock(36)")
        with ThreadPoolExecutor(1) as pool:

            def slow():
                with psycopg.connect(queues.url, autocommit=True) as other:
                    other.execute(INSERT.format(queue=queue), ("slow", 1))

            writing = pool.submit(slow)
            sequence = f"SELECT pg_sequence_last_value(pg_get_serial_sequence('public.{queue}', 'seq'))"
            while connection.execute(sequence).fetchone()[0] < 2:
                time.sleep(0.01)
            connection.execute(INSERT.format(queue=queue), ("", 1))
            try:
                ends = [
                    connection.execute(end_of.format(queue=queue)).fetchone()[0]
                    for end_of in (HIGHEST, OLDEST_SNAPSHOT)
                ]
                tail.poll()
                during = list(tail.seen)
            finally:
                connection.execute("SELECT pg_advisory_unlock(36)")
            writing.result()
        tail.poll()
        tail.close()

    assert ends == [3, 3]  # both naive readers would skip row version 2
    assert during == [1]
    assert sorted(tail.seen) == [1, 2, 3]
