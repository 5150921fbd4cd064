"""Ctrl-C in the middle of each command: exit code 130, words on what was done, and a consistent database."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from rowpost.database.connection import Connection, connect_url
from rowpost.deploy.deployment import deployment
from rowpost.deploy.plan import plan
from rowpost.settings.environment import load_settings
from tests.support.probe import Probe, probe_for
from tests.support.program import Ended, Program, environment_file, program
from tests.support.workers import eventually

__all__ = ["program"]

INTERRUPTED = 130


@pytest.fixture
def sales(program: Program) -> Program:
    """The program, with the queue Sales empty."""
    assert program("queue", "purge", "Sales", "--yes").code == 0
    return program


@pytest.fixture
def connect(program: Program) -> Iterator[Callable[[], Connection]]:
    """Opens connections to the program's database."""
    opened: list[Connection] = []

    def open_one() -> Connection:
        opened.append(connect_url("postgresql", program.variables["SHOP_URL"]))
        return opened[-1]

    yield open_one
    for database in opened:
        database.close()


@pytest.fixture
def sql(connect: Callable[[], Connection]) -> Probe:
    """Plain SQL, to arrange and to look."""
    return probe_for(connect())


@contextmanager
def locked(sql: Probe, queue: str) -> Iterator[None]:
    """Keeps everybody from the queue's table."""
    with sql.database.transaction():
        sql.run(f"LOCK TABLE {sql.table(queue)} IN ACCESS EXCLUSIVE MODE")
        yield


def wait_for(connect: Callable[[], Connection], condition: str) -> None:
    """Waits until a session of the command line is in that state."""
    watcher = probe_for(connect())
    query = f"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'rowpost command line' AND {condition}"
    eventually(lambda: watcher.value(query), condition)


WAITS_FOR_A_LOCK = "wait_event_type = 'Lock'"
IN_A_TRANSACTION = "state = 'idle in transaction'"


def assert_interrupted(ended: Ended) -> None:
    assert ended.code == INTERRUPTED, ended.err
    assert "stopped by Ctrl-C" in ended.err
    assert "Traceback" not in ended.err


def depth(sql: Probe, queue: str) -> int:
    return sql.value(f"SELECT count(*) FROM {sql.table(queue)}")


def test_a_send_that_waits_sends_nothing(sales: Program, connect, sql: Probe):
    with locked(sql, "Sales"), sales.started("send", "Sales", "--body", "x") as sending:
        wait_for(connect, WAITS_FOR_A_LOCK)
        sending.interrupt()
        ended = sending.ended()

    assert_interrupted(ended)
    assert "nothing was sent" in ended.err
    assert depth(sql, "Sales") == 0


def test_a_send_that_reads_its_lines_sends_none_of_them(sales: Program, connect, sql: Probe):
    with sales.started("send", "Sales", "--lines") as sending:
        sending.process.stdin.write(b"a line\n" * 2500)
        sending.process.stdin.flush()
        wait_for(connect, IN_A_TRANSACTION)
        sending.interrupt()
        ended = sending.ended()

    assert_interrupted(ended)
    assert depth(sql, "Sales") == 0


def test_a_receive_that_is_still_printing_takes_nothing(sales: Program, connect, sql: Probe):
    sales("send", "Sales", "--raw", stdin=b"x" * 5_000_000)

    with sales.started("receive", "Sales") as receiving:
        wait_for(connect, IN_A_TRANSACTION)  # nobody reads: the pipe is full
        receiving.interrupt()
        ended = receiving.ended()

    assert_interrupted(ended)
    assert depth(sql, "Sales") == 1


def test_a_purge_removes_as_many_as_it_says(sales: Program, sql: Probe):
    count = 200_000
    sql.run(
        f"INSERT INTO {sql.table('Sales')} (id, headers) SELECT gen_random_uuid(), '' FROM generate_series(1, ?)", count
    )

    with sales.started("queue", "purge", "Sales", "--yes") as purging:
        eventually(lambda: depth(sql, "Sales") < count, "the purge has begun")
        purging.interrupt()
        ended = purging.ended()

    assert_interrupted(ended)
    removed = int(re.search(r"deleted ([\d,]+)", ended.err)[1].replace(",", ""))
    assert 0 < removed < count
    assert depth(sql, "Sales") == count - removed


def test_a_browse_that_waits_ends(sales: Program, connect, sql: Probe):
    with locked(sql, "Sales"), sales.started("queue", "browse", "Sales") as browsing:
        wait_for(connect, WAITS_FOR_A_LOCK)
        browsing.interrupt()

        assert_interrupted(browsing.ended())


@pytest.mark.parametrize("command", [("apply",), ("queue", "create", "New"), ("queue", "drop", "Billing", "--yes")])
def test_a_deployment_that_waits_for_another_one_changes_nothing(
    sales: Program, connect, sql: Probe, tmp_path, monkeypatch, command
):
    more = environment_file(tmp_path, rest="queues: {Sales: {}, Additional: {}}\n")
    monkeypatch.setenv("SHOP_URL", sales.variables["SHOP_URL"])
    database = connect()

    with (
        deployment(database, plan(load_settings(more)).scripts),
        sales.with_environment(more).started(*command) as deploying,
    ):
        wait_for(connect, WAITS_FOR_A_LOCK)
        deploying.interrupt()
        ended = deploying.ended()

    assert_interrupted(ended)
    assert [row[0] for row in database.call("list_queues")] == ["Billing", "Sales", "audit", "error"]
    assert sales("verify").code == 0


SLOW = """
import pathlib, time

def slowly(message, connection):
    pathlib.Path("started").touch()
    deadline = time.monotonic() + 30
    while not pathlib.Path("go").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
"""
WORKED = 'queues: {Sales: {worker: {handler: "slow:slowly", peek_delay: 0.1}}, error: {}}\n'


@pytest.fixture
def slow_shop(sales: Program, tmp_path) -> Program:
    """The program with a handler that waits for a file."""
    (sales.folder / "slow.py").write_text(SLOW)
    for name in ("started", "go"):
        (sales.folder / name).unlink(missing_ok=True)
    return sales.with_environment(environment_file(tmp_path, rest=WORKED))


def test_run_lets_the_running_handler_finish(slow_shop: Program, sql: Probe):
    slow_shop("send", "Sales", "--lines", stdin="in hand\nwaiting")

    with slow_shop.started("run", "--queue", "Sales") as running:
        eventually((slow_shop.folder / "started").exists, "a handler runs")
        running.interrupt()
        threading.Timer(0.3, (slow_shop.folder / "go").touch).start()
        ended = running.ended()

    assert_interrupted(ended)
    handled = int(re.search(r"Sales: (\d) handled", ended.out)[1])
    assert handled >= 1
    assert depth(sql, "Sales") == 2 - handled


def test_the_last_line_of_a_stopped_run_counts_no_handled_message_as_waiting(slow_shop: Program, sql: Probe):
    slow_shop("send", "Sales", "--body", "in hand")

    with slow_shop.started("run", "--queue", "Sales") as running:
        eventually((slow_shop.folder / "started").exists, "a handler runs")
        running.process.terminate()
        eventually(lambda: b"stopping" in running.process.stdout.readline(), "it stops")
        (slow_shop.folder / "go").touch()
        ended = running.ended()

    last = ended.out.splitlines()[-1]
    assert ("1 handled" in last, "waiting" in last, depth(sql, "Sales")) == (True, False, 0)


def test_run_interrupted_twice_kills_the_handler_and_the_message_is_back(slow_shop: Program, sql: Probe):
    slow_shop("send", "Sales", "--body", "in hand")

    with slow_shop.started("run") as running:
        eventually((slow_shop.folder / "started").exists, "a handler runs")
        running.interrupt()
        running.interrupt()
        threading.Timer(1.0, running.interrupt).start()  # two signals at once may be delivered as one
        ended = running.ended()

    assert_interrupted(ended)
    assert depth(sql, "Sales") == 1


def test_sigterm_is_the_normal_end_of_run(slow_shop: Program):
    with slow_shop.started("run") as running:
        eventually(lambda: b"started" in running.process.stdout.readline(), "a worker is up")
        running.process.terminate()
        ended = running.ended()

    assert ended.code == 0
