"""An archive that leaves messages because transactions are open says how many and whose, and a later run gets on."""

import json
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from rowpost.cli.app import app
from rowpost.database.connection import connect_url
from rowpost.spark.source.checkpoint import committed_offset
from rowpost.transport.queue import Queue

OK, FINDING, USAGE = 0, 1, 2


@pytest.fixture
def cli(queues, tmp_path):
    """Archive a queue. Returns the exit code, the JSON of the last line, and stderr."""

    def call(queue, *arguments):
        command = [
            "--env",
            queues.environment,
            "spark",
            "archive",
            queue,
            str(tmp_path / "out"),
            "--checkpoint",
            str(tmp_path / "c"),
            *arguments,
        ]
        ended = CliRunner().invoke(app, command)
        last = ended.stdout.strip().splitlines()[-1:]
        return ended.exit_code, json.loads(last[0]) if last else None, ended.stderr

    call.kept = lambda: queues.archived(tmp_path / "out")
    call.checkpoint = tmp_path / "c"
    return call


@contextmanager
def writing(queues, queue, application="nightly job"):
    """Keep a transaction that has written to the queue open; it is rolled back at the end."""
    with connect_url("postgresql", queues.url, application) as database:
        database.begin()
        Queue(queue, database).send(b"-1")
        yield database
        if database.in_transaction:
            database.rollback()


def numbered(first, last):
    return [b"%d" % number for number in range(first, last)]


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    """A run waits for open transactions for a second only."""
    from rowpost.spark.source import options

    monkeypatch.setitem(options._DEFAULTS, "watermark_timeout_s", 1.0)


def test_a_run_that_archives_nothing_says_how_many_wait_and_for_whom_also_by_its_exit_code_if_it_is_asked_for(
    queues, cli
):
    queue = queues.make()
    queues.send(queue, numbered(0, 5))

    with writing(queues, queue) as other:
        process = other.driver_connection.info.backend_pid
        queues.send(queue, numbered(5, 1500))
        code, counts, said = cli(queue, "--fail-when-held")
    after = cli(queue, "--fail-when-held")

    assert (code, counts["messages"], counts["waiting"]) == (FINDING, 0, 1500)
    (holder,) = counts["held_by"]
    assert (holder["process"], holder["application"]) == (process, "nightly job") and holder["since"].endswith("Z")
    assert "1,500 messages" in said and str(process) in said and "nightly job" in said
    assert (after[0], after[1]["messages"], after[1]["waiting"], after[1]["held_by"]) == (OK, 1500, 0, [])
    assert cli.kept() == list(range(1500))
    assert cli(queue, "--fail-when-held", "--drain")[0] == USAGE


def test_a_nightly_run_beside_a_long_transaction_gets_on_by_what_the_last_run_has_learnt(queues, cli):
    queue = queues.make()
    queues.send(queue, numbered(0, 5))

    with writing(queues, queue, "monday") as monday:
        first = cli(queue)
        with writing(queues, queue, "tuesday"):
            queues.send(queue, numbered(5, 8))
            again = cli(queue)[1]
            noted = committed_offset(cli.checkpoint)["polls"]
            monday.rollback()
            third = cli(queue)[1]

    assert (first[0], first[1]["messages"], again["messages"]) == (OK, 0, 0)
    assert [len(writers) for _, writers in noted] == [1, 2]
    assert third["messages"] == 5
    assert (third["waiting"], [each["application"] for each in third["held_by"]]) == (3, ["tuesday"])
    assert cli.kept() == list(range(5))


def test_a_run_whose_holders_have_ended_meanwhile_forgets_its_notes(queues, cli):
    queue = queues.make()
    with writing(queues, queue):
        queues.send(queue, numbered(0, 5))
        cli(queue)
        before = committed_offset(cli.checkpoint)
    with queues.connect() as database:
        database.driver_connection.execute(f'DELETE FROM public."{queue}"')

    code, counts, _ = cli(queue)

    assert before["polls"] and "polls" not in committed_offset(cli.checkpoint)
    assert (code, counts["messages"], counts["waiting"]) == (OK, 0, 0)


def test_a_prepared_transaction_is_named_as_such(queues, cli):
    queue = queues.make()
    with queues.connect() as database:
        if database.driver_connection.execute("SHOW max_prepared_transactions").fetchone()[0] == "0":
            pytest.skip("the server prepares no transactions")
    with writing(queues, queue) as other:
        queues.send(queue, numbered(0, 3))
        other.driver_connection.execute(f"PREPARE TRANSACTION '{queue}'")
        counts = cli(queue)[1]
        other.driver_connection.execute(f"ROLLBACK PREPARED '{queue}'")

    assert [(each["process"], each["application"]) for each in counts["held_by"]] == [
        (None, f"prepared transaction {queue}")
    ]
