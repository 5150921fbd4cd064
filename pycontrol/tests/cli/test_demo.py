"""The demo: the main job on real input, on every engine, counted to the last message."""

import re
import shutil

import pytest

from rowpost.database.connection import Connection, connect_url
from rowpost.transport.queue import Queue
from tests.support.program import Program, rowpost
from tests.support.workers import eventually

__all__ = ["rowpost"]

ORDERS = 400


@pytest.fixture
def database(rowpost: Program):
    """A connection beside the demo's."""
    with connect_url(rowpost.engine, rowpost.variables["SHOP_URL"]) as database:
        yield database


def queues(database: Connection) -> set[str]:
    return {row[0] for row in database.call("list_queues")}


def handled(database: Connection) -> tuple[int, int]:
    """Rows in the business table, and messages behind them; nothing before it exists."""
    try:
        with database.translated():
            cursor = database.driver_connection.cursor()
            cursor.execute("SELECT COUNT(*), COUNT(DISTINCT message_row) FROM demo_order")
            return tuple(cursor.fetchone())
    except Exception:
        return (0, 0)


def test_the_demo_handles_every_message_exactly_once_and_cleans_up_in_a_database_of_yours(rowpost: Program, database):
    shown = rowpost("demo", "--orders", ORDERS, "--workers", "3", "--yes", "--json")

    assert shown.code == 0, shown.err
    result = shown.json
    assert result["correct"]
    assert result["sent"] == ORDERS + 11
    assert result["handled"] == result["handled_once"] == ORDERS + 2
    assert (result["in_error"], result["in_audit"], result["expired"], result["waiting"]) == (7, 1, 1, 0)
    reasons = [error["reason"] for error in result["errors"]]
    assert "no such order" in reasons
    assert sum("is not positive" in reason for reason in reasons) == 5
    assert sum("not JSON" in reason for reason in reasons) == 1
    assert result["workers"][-1] == 1
    assert max(result["workers"]) == 3
    assert not any(name.startswith("Demo.") for name in queues(database))


def test_the_demo_fails_when_a_count_is_not_exactly_right(rowpost: Program, database: Connection):
    with rowpost.started("demo", "--orders", "50", "--yes") as showing:
        eventually(lambda: "Demo.error" in queues(database), "the stage is set")
        eventually(lambda: handled(database)[0] > 0, "the supervisor works")
        Queue("Demo.error", database).send(b"one too many")
        ended = showing.ended()

    assert ended.code == 7
    assert "WRONG: in error: 8, expected 7" in ended.out


def test_the_demo_interrupted_in_the_middle_of_its_burst_loses_nothing(rowpost: Program, database: Connection):
    with rowpost.started("demo", "--orders", "100000", "--yes", "--keep") as showing:
        eventually(lambda: handled(database)[0] > 100, "the burst is being handled")
        showing.interrupt()
        ended = showing.ended()

    rows, messages = handled(database)
    said = int(re.search(r"([\d,]+) messages were handled", ended.err)[1].replace(",", ""))
    assert ended.code == 130
    assert "Traceback" not in ended.err
    assert rows == messages == said


def test_the_demo_asks_before_it_uses_a_database_of_yours(rowpost: Program):
    refused = rowpost("demo")

    assert refused.code == 2
    assert "--yes" in refused.err


def test_the_demo_on_a_fresh_machine_starts_its_own_postgresql_and_prints_a_line_a_second(tmp_path):
    fresh = Program(None, tmp_path)

    shown = fresh("demo", "--orders", ORDERS)
    browsed = fresh("queue", "browse", "Demo.error")

    shutil.rmtree(tmp_path / "data", ignore_errors=True)
    assert shown.code == 0, shown.err
    assert re.search(r"^ +\d+\.\d s  sent +[\d,]+  waiting", shown.out, re.MULTILINE)
    assert f"{ORDERS + 2:,}  handled, each exactly once" in shown.out
    assert "workers over time" in shown.out
    assert "Nothing lost, nothing doubled." in shown.out
    assert "failed: no such order" in browsed.out
