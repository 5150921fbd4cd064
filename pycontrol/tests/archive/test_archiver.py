"""`rowpost archive`: what a run archives, where the next one continues, and what is refused."""

import json
import shutil
import subprocess
import sys

import pytest

from rowpost.archive.columns import ARCHIVE
from rowpost.archive.source import streams
from rowpost.archive.table import open_table
from rowpost.deploy.queues import forget_queue
from tests.support.spark.killing import ROWPOST

OK, FINDING, USAGE, UNAVAILABLE, NOT_FOUND, FAILED = 0, 1, 2, 4, 6, 7
HEADERS = json.dumps(
    {
        "NServiceBus.MessageId": "m1",
        "NServiceBus.TimeSent": "2024-05-17 12:00:00:000000 Z",
        "NServiceBus.EnclosedMessageTypes": "Shop.Paid, Shop",
    }
)


def numbered(first, last):
    return [b"%d" % number for number in range(first, last)]


@pytest.mark.parametrize("mode", ["--tail", "--drain"])
def test_a_run_archives_what_is_there_and_the_next_one_continues(queues, place, mode):
    queue = queues.make()
    queues.send(queue, numbered(0, 50))

    first = place.run(queue, mode, "--max-rows", 20)
    nothing_new = place.run(queue, mode)
    queues.send(queue, numbered(50, 80))
    second = place.run(queue, mode)

    assert [(code, done["batches"], done["messages"]) for code, done, _ in (first, nothing_new, second)] == [
        (OK, 3, 50),
        (OK, 0, 0),
        (OK, 1, 30),
    ]
    assert place.bodies() == list(range(80))
    assert (queues.depth(queue), queues.spooled(queue)) == ((80, 0) if mode == "--tail" else (0, 0))


@pytest.mark.parametrize("mode", ["--tail", "--drain"])
def test_each_batch_is_told_with_what_is_left(queues, place, tmp_path, mode):
    queue, told = queues.make(), tmp_path / "progress.jsonl"
    queues.send(queue, numbered(10, 60))

    code, _, said = place.run(queue, mode, "--max-rows", 20, "--progress", told)

    lines = [json.loads(line) for line in told.read_text().splitlines()]
    assert code == OK, said
    assert [(each["rows"], each["written"], each["lag_messages"]) for each in lines] == [
        (20, 20, 30),
        (20, 20, 10),
        (10, 10, 0),
    ]
    assert {each["query"] for each in lines} == {f"rowpost archive {queue}"}
    assert sum(each["bytes"] for each in lines) == 50 * (2 + len("{}"))
    assert [each["batch"] for each in lines] == [0, 1, 2]


def test_an_archived_message_has_its_headers_in_columns_and_a_day(queues, place):
    queue = queues.make()
    queues.send(queue, [b"7"], HEADERS)

    place.run(queue)

    (row,) = place.table.to_pyarrow_table().to_pylist()
    assert list(row) == list(ARCHIVE.names)
    assert (row["message_id"], row["message_type"], row["queue"], str(row["day"])) == (
        "m1",
        "Shop.Paid",
        queue,
        "2024-05-17",
    )
    assert (row["headers"], row["body"], row["headers_valid"], row["body_bytes"]) == (HEADERS, b"7", True, 1)


def test_several_queues_are_archived_to_one_table_each_by_its_own_offset(queues, place):
    one, other = queues.make(), queues.make()
    queues.send(one, numbered(0, 10))
    queues.send(other, numbered(10, 15))

    place.run(one)
    both = place.run(f"{other},{one}")
    again = place.run(f"{one},{other}")

    assert [(code, done["messages"]) for code, done, _ in (both, again)] == [(OK, 5), (OK, 0)]
    assert place.bodies() == list(range(15))


def test_a_batch_has_at_most_the_bytes_that_are_asked_for(queues, place):
    queue = queues.make()
    queues.send(queue, [b"%0100000d" % number for number in range(12)])

    _, done, _ = place.run(queue, "--max-bytes", 400_000)

    assert (done["batches"], done["messages"]) == (4, 12)


def test_large_bodies_do_not_fill_the_memory(queues, place):
    queue = queues.make()
    queues.send(queue, [bytes([number]) * (4 << 20) for number in range(60)])

    peak = peak_of(queues, queue, place.path)

    assert len(open_table(str(place.path)).files()) >= 1
    assert peak < 500 << 20  # the bodies alone have 240 MB, and twice as much would be held if they were collected


def peak_of(queues, queue, path):
    """Run the command in a process of its own, and return the most memory that it had, in bytes."""
    measure = (  # ru_maxrss begins with the memory of the process that starts this one
        "import sys, atexit, pathlib\natexit.register(lambda: print(pathlib.Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0], file=sys.stderr))\n"
        + ROWPOST
    )
    ended = subprocess.run(
        [sys.executable, "-c", measure, "--env", queues.environment, "archive", queue, str(path)],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == OK, ended.stderr
    return int(ended.stderr.split()[-1]) << 10


@pytest.fixture
def impatient(monkeypatch):
    """Let a run wait only 0.2 seconds for open transactions."""
    wait = streams.wait_for_watermark
    monkeypatch.setattr(
        streams,
        "wait_for_watermark",
        lambda database, queue, timeout_s, watermark: wait(database, queue, 0.2, watermark),
    )


@pytest.mark.usefixtures("impatient")
def test_messages_that_an_open_transaction_holds_back_are_named_and_archived_later(queues, place):
    queue = queues.make()
    queues.send(queue, numbered(0, 3))
    with queues.connect() as other, other.transaction():
        other.driver_connection.execute(
            f"INSERT INTO public.\"{queue}\" (id, headers, body) VALUES (gen_random_uuid(), '{{}}', '3')"
        )
        queues.send(queue, numbered(4, 6))
        code, done, said = place.run(queue, "--fail-when-held")
    later = place.run(queue, "--fail-when-held")

    assert (code, done["waiting"], len(done["held_by"])) == (FINDING, 5, 1)
    assert "are not archived yet" in said
    assert (later[0], later[1]["waiting"]) == (OK, 0)
    assert place.bodies() == list(range(6))


@pytest.mark.usefixtures("impatient")
def test_what_a_run_learnt_of_open_transactions_is_stored_in_the_table(queues, place):
    queue = queues.make()
    with queues.connect() as first, queues.connect() as second:
        first.begin()
        second.begin()
        first.driver_connection.execute(
            f"INSERT INTO public.\"{queue}\" (id, headers, body) VALUES (gen_random_uuid(), '{{}}', '0')"
        )
        place.run(queue)
        second.driver_connection.execute(
            f"INSERT INTO public.\"{queue}\" (id, headers, body) VALUES (gen_random_uuid(), '{{}}', '1')"
        )
        first.commit()
        place.run(queue)  # one writer is always open: without the stored polls, no run could archive anything
        archived = place.bodies()
        second.commit()

    assert archived == [0]


def test_a_queue_that_was_created_again_is_refused_until_it_is_asked_for(queues, place):
    queue = queues.make()
    queues.send(queue, numbered(0, 3))
    place.run(queue)
    with queues.connect() as database:
        database.driver_connection.execute(f'DROP TABLE public."{queue}"')
        forget_queue(database, queue)
    queues.make(queue)
    queues.send(queue, numbered(3, 5))

    code, _, said = place.run(queue)
    accepted = place.run(queue, "--recreated")
    afterwards = place.run(queue)

    assert code == FAILED
    assert "--recreated" in said
    assert (accepted[1]["messages"], afterwards[1]["messages"]) == (2, 0)
    assert place.bodies() == list(range(5))


def test_a_purge_of_messages_that_were_not_archived_is_refused_until_it_is_accepted(queues, place):
    queue = queues.make()
    queues.send(queue, numbered(0, 3))
    place.run(queue)
    queues.send(queue, numbered(3, 5))
    with queues.connect() as database:
        database.call("purge_queue", queue, count=100)
    queues.send(queue, numbered(5, 7))

    code, _, said = place.run(queue)
    accepted = place.run(queue, "--accept-loss")
    afterwards = place.run(queue)

    assert (code, accepted[0], afterwards[0]) == (FAILED, OK, OK)
    assert "--accept-loss" in said
    assert place.bodies() == [0, 1, 2, 5, 6]


def test_the_other_mode_is_refused(queues, place):
    queue = queues.make()
    queues.send(queue, numbered(0, 3))
    place.run(queue)

    code, _, said = place.run(queue, "--drain")

    assert (code, queues.depth(queue)) == (FAILED, 3)
    assert "a tail" in said


def test_a_table_that_was_restored_from_a_copy_is_completed_from_the_queue(queues, place, tmp_path):
    queue = queues.make()
    queues.send(queue, numbered(0, 10))
    place.run(queue)
    shutil.copytree(place.path, tmp_path / "copy")
    queues.send(queue, numbered(10, 20))
    place.run(queue)
    shutil.rmtree(place.path)
    shutil.move(tmp_path / "copy", place.path)

    place.run(queue)

    assert place.bodies() == list(range(20))


@pytest.mark.parametrize("mode", ["--tail", "--drain"])
def test_with_a_checkpoint_an_older_copy_of_the_table_is_refused(queues, place, tmp_path, mode):
    queue, noted = queues.make(), ("--checkpoint", tmp_path / "noted")
    queues.send(queue, numbered(0, 5))
    place.run(queue, mode, *noted)
    shutil.copytree(place.path, tmp_path / "copy")
    queues.send(queue, numbered(5, 9))
    place.run(queue, mode, *noted)
    shutil.rmtree(place.path)
    shutil.move(tmp_path / "copy", place.path)
    queues.send(queue, numbered(9, 10))

    code, _, said = place.run(queue, mode, *noted)
    shutil.rmtree(tmp_path / "noted")
    accepted, _, _ = place.run(queue, mode, *noted)

    assert (code, accepted) == (FAILED, OK)
    assert "is older than the checkpoint" in said
    assert place.bodies() == (list(range(10)) if mode == "--tail" else [0, 1, 2, 3, 4, 9])


def test_a_drain_of_another_archive_is_refused_while_the_first_can_continue(queues, place, tmp_path):
    queue = queues.make()
    queues.send(queue, numbered(0, 4))
    place.run(queue, "--drain")
    queues.send(queue, numbered(4, 8))
    elsewhere = type(place)(queues, tmp_path / "elsewhere")

    code, _, said = elsewhere.run(queue, "--drain")
    taken = elsewhere.run(queue, "--drain", "--take-over")

    assert code == FAILED
    assert "drains this queue" in said
    assert (taken[1]["messages"], elsewhere.bodies(), place.bodies()) == (4, [4, 5, 6, 7], [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--once", "--every", "1s"), "cannot be combined"),
        (("--shared",), "need --drain"),
        (("--drain", "--fail-when-held"), "tail that ends"),
    ],
)
def test_options_that_contradict_each_other_are_refused(queues, place, options, says):
    code, _, said = place.run("nobody", *options)

    assert code == USAGE
    assert says in said


def test_a_queue_that_does_not_exist_is_named(queues, place):
    code, _, said = place.run("nobody")

    assert code == NOT_FOUND
    assert "'nobody'" in said
    assert not place.path.exists()


def test_a_missing_package_is_named_with_the_extra_that_has_it(queues, place, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("rowpost.archive")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("deltalake", "deltalake.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)

    code, _, said = place.run("audit")

    assert code == UNAVAILABLE
    assert "needs deltalake" in said
    assert "[archive]" in said


def test_the_command_imports_neither_pyspark_nor_java(queues, place):
    queue = queues.make()
    program = (
        "import sys\nsys.modules['pyspark'] = None\nfrom rowpost.cli import main\n"
        f"sys.argv = ['rowpost', '--env', {queues.environment!r}, 'archive', {queue!r}, {str(place.path)!r}]\nmain()"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert ended.returncode == OK, ended.stderr
    assert json.loads(ended.stdout)["messages"] == 0
