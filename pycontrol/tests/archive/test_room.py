"""The room of the archive knows no Spark, and its columns are those that Spark's jobs have."""

import ast
import threading
from pathlib import Path

import pytest

import rowpost.archive
from rowpost.archive import columns
from rowpost.archive.source.queue_stream import Held
from rowpost.archive.source.reading import read_ahead
from rowpost.archive.standalone import running
from rowpost.spark.archive import schemas

ROOM = Path(rowpost.archive.__file__).parent


def test_no_module_of_the_room_imports_pyspark():
    imports = [
        f"{path.relative_to(ROOM)}:{node.lineno}"
        for path in ROOM.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom) and "pyspark" in ast.unparse(node)
    ]

    assert imports == []


@pytest.mark.parametrize("name", ["MESSAGE", "ARCHIVE"])
def test_spark_writes_the_same_columns(name):
    assert getattr(columns, name).equals(schemas.arrow_schema(getattr(schemas, name)))


class Failing:
    """An archiver whose store cannot be written twice, and then is stopped."""

    batches = messages = 0

    def __init__(self, stop):
        self.left, self.stop = [OSError("No space left on device"), OSError("No space left on device"), None], stop

    def begin(self, *, ends):
        assert not ends

    def step(self):
        error = self.left.pop(0)
        if error is not None:
            raise error
        self.stop.set()
        return False

    def finish(self):
        return Held()

    def close(self):
        pass


def test_a_service_outlives_a_store_that_cannot_be_written_and_says_it_once(monkeypatch):
    monkeypatch.setattr(running, "_FIRST_DELAY_S", 0.01)
    stop, said = running.Stop(), []

    running.run([Failing(stop)], 0.01, stop, say=said.append)

    assert said == [
        "the archive cannot be written; trying again until it can: No space left on device",
        "the archive is written again",
    ]


def test_batches_that_are_read_ahead_come_in_order_with_the_error_that_ends_them():
    def batches():
        yield from range(10)
        raise OSError("the connection was lost")

    found = []
    with pytest.raises(OSError, match="the connection was lost"):
        for each in read_ahead(batches()):
            found.append(each)

    assert found == list(range(10))


def test_a_reader_that_is_not_needed_any_more_is_closed():
    closed = threading.Event()

    def batches():
        try:
            while True:
                yield 1
        finally:
            closed.set()

    ahead = read_ahead(batches())
    next(ahead)
    ahead.close()

    assert closed.wait(60)
