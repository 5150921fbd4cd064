"""Each message is archived once, however a run of `rowpost archive` ends, and whoever else archives."""

import json
import random
import signal
import subprocess
import threading
import time

import pytest

from rowpost.archive.source.drain import Drain
from rowpost.archive.table import ArchiveTable, open_table
from rowpost.archive.writer import TableWriter
from tests.archive.conftest import Place
from tests.support.fork_server import ForkServer
from tests.support.spark.killing import ROWPOST
from tests.support.spark.outages import own_server

ARCHIVERS = ForkServer("rowpost", "rowpost.archive.standalone.archiver", "rowpost.archive.merging")
OK, FAILED, INTERRUPTED = 0, 7, 130
DEADLINE_S = 60


def numbered(first, last):
    return [b"%d" % number for number in range(first, last)]


@pytest.fixture(scope="module", autouse=True)
def archivers():
    """The server of the archivers stops with the last test."""
    yield
    ARCHIVERS.stop()


def started(place, queue, *options, stderr=subprocess.PIPE):
    """Start the command in a process of its own."""
    arguments = ["--env", place.queues.environment, "archive", queue, str(place.path), *map(str, options)]
    return ARCHIVERS.start(["-c", ROWPOST, *arguments], stdout=subprocess.PIPE, stderr=stderr, text=True)


def wait_for(condition):
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.02)


def commits(place):
    return len(list(place.path.glob("_delta_log/*.json")))


@pytest.mark.parametrize("mode", ["--tail", "--drain"])
def test_kills_at_any_moment_lose_and_double_nothing(queues, place, mode):
    queue, source, sent, over = queues.make(), random.Random(36), [0], threading.Event()

    def send():
        while not over.is_set():
            queues.send(queue, numbered(sent[0], sent[0] + 20))
            sent[0] += 20

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for _ in range(6):
            before = commits(place)
            process = started(place, queue, mode, "--every", "10ms", "--max-rows", 15)
            wait_for(lambda before=before: commits(place) > before + 1)
            time.sleep(source.uniform(0, 0.1))
            process.kill()
            process.communicate()
            assert process.returncode == -signal.SIGKILL
    finally:
        over.set()
        sender.join()
    code, _, _ = place.run(queue, mode)

    assert code == OK
    assert place.bodies() == list(range(sent[0]))
    assert (queues.depth(queue), queues.spooled(queue)) == ((sent[0], 0) if mode == "--tail" else (0, 0))


@pytest.mark.parametrize("mode", ["--tail", "--drain"])
@pytest.mark.parametrize(
    ("kind", "name", "after"),
    [
        (TableWriter, "add", False),
        (ArchiveTable, "commit", False),
        (ArchiveTable, "commit", True),
        (Drain, "commit", False),
    ],
    ids=["after the move", "before the commit", "after the commit", "before the spool is emptied"],
)
def test_a_run_that_ends_between_two_steps_is_completed_by_the_next_one(
    queues, place, monkeypatch, mode, kind, name, after
):
    queue, original = queues.make(), getattr(kind, name)
    queues.send(queue, numbered(0, 10))

    def die(*values, **options):
        if after:
            original(*values, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(kind, name, die)
        code, _, _ = place.run(queue, mode)
    queues.send(queue, numbered(10, 15))
    place.run(queue, mode)

    assert code == (OK if kind is Drain and mode == "--tail" else INTERRUPTED)
    assert place.bodies() == list(range(15))
    assert queues.spooled(queue) == 0


@pytest.mark.parametrize("mode", ["--tail", "--drain"])
def test_of_two_archivers_at_once_one_is_refused(queues, place, monkeypatch, mode):
    queue, original, others = queues.make(), ArchiveTable.commit, []
    queues.send(queue, numbered(0, 10))

    def overtaken(table, *values, **options):
        if not others:
            others.append(None)
            queues.send(queue, numbered(10, 15))
            others[0] = place.run(queue, mode)
        return original(table, *values, **options)

    monkeypatch.setattr(ArchiveTable, "commit", overtaken)
    code, _, said = place.run(queue, mode)
    monkeypatch.undo()
    place.run(queue, mode)

    assert (code, others[0][0]) == (FAILED, OK)
    assert "Another archiver has added messages of this queue" in said
    assert place.bodies() == list(range(15))
    assert queues.spooled(queue) == 0


def test_an_archiver_of_the_same_batch_skips_it(queues, place, monkeypatch):
    queue, original, others = queues.make(), ArchiveTable.commit, []
    queues.send(queue, numbered(0, 10))

    def overtaken(table, *values, **options):
        if not others:
            others.append(None)
            others[0] = place.run(queue)
        return original(table, *values, **options)

    monkeypatch.setattr(ArchiveTable, "commit", overtaken)
    code, done, _ = place.run(queue)

    assert (code, done["messages"], others[0][1]["messages"]) == (OK, 0, 10)
    assert place.bodies() == list(range(10))
    assert len(list(place.path.glob("queue=*/**/*.parquet"))) == 1


def test_the_files_of_a_commit_whose_answer_was_lost_stay(queues, place, monkeypatch):
    queue, original = queues.make(), ArchiveTable.commit
    queues.send(queue, numbered(0, 10))
    monkeypatch.setattr(ArchiveTable, "commit", lambda *values, **options: original(*values, **options) and False)

    code, _, _ = place.run(queue, "--drain")

    assert code == OK
    assert place.bodies() == list(range(10))
    assert queues.spooled(queue) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_service_quietly_after_its_batch(queues, place, number):
    queue = queues.make()
    queues.send(queue, numbered(0, 5))
    process = started(place, queue, "--every", "1h")
    wait_for(lambda: commits(place) > 1)

    process.send_signal(number)
    printed, said = process.communicate(timeout=DEADLINE_S)

    assert (process.returncode, said) == (OK, "")
    assert json.loads(printed)["messages"] == 5


def test_a_run_that_is_stopped_between_two_batches_says_that_it_is_not_complete(queues, place, monkeypatch):
    queue, original = queues.make(), TableWriter.add
    queues.send(queue, numbered(0, 10))

    def interrupted(*values, **options):
        signal.raise_signal(signal.SIGINT)
        return original(*values, **options)

    monkeypatch.setattr(TableWriter, "add", interrupted)
    code, _, said = place.run(queue, "--max-rows", 4)

    assert code == INTERRUPTED
    assert "run the same command again to continue" in said
    assert place.bodies() == [0, 1, 2, 3]


def test_a_service_outlives_an_outage_and_says_it_once(tmp_path):
    with own_server() as (server, queues):
        place, queue, said = Place(queues, tmp_path / "archive"), queues.make(), tmp_path / "said"
        queues.send(queue, numbered(0, 5))
        with said.open("w") as err:
            process = started(place, queue, "--every", "50ms", stderr=err)
        wait_for(lambda: commits(place) > 1)

        server.stop()
        wait_for(lambda: "waiting for the server" in said.read_text())
        server.start()
        queues.send(queue, numbered(5, 9))
        wait_for(lambda: len(place.bodies()) == 9)
        server.stop()
        wait_for(lambda: said.read_text().count("waiting for the server") == 2)
        process.terminate()
        process.communicate(timeout=DEADLINE_S)

    assert process.returncode == OK
    assert [line.split()[1] for line in said.read_text().splitlines()] == ["waiting", "the", "waiting"]
    assert place.bodies() == list(range(9))


def test_small_files_of_a_service_are_merged(queues, place):
    queue = queues.make()
    for number in range(12):
        queues.send(queue, numbered(number, number + 1))
        place.run(queue)

    assert len(open_table(str(place.path)).files()) == 3
    assert place.bodies() == list(range(12))
