"""The jobs archive and replay with a queue: exactly once, and their error messages."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from rowpost.archive.folder import ArchiveFolder
from rowpost.spark.archive.replays import list_replays
from rowpost.spark.jobs import replay as replaying
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage
from tests.support.spark.archives import archived_rows
from tests.support.spark.messages import NOON, audit_row, error_row

OK, USAGE, NOT_FOUND, FAILED = 0, 2, 6, 7


def fill(queues, count: int, where: str) -> str:
    """Create a queue with a number of failed messages."""
    queue = queues.make()
    with queues.connect() as database:
        sent = [OutgoingMessage(b"%d" % number, error_row(f"m{number}", FailedQ=where)[5]) for number in range(count)]
        Queue(queue, database).send_many(sent)
    return queue


@pytest.fixture
def failed(queues):
    return lambda count, where="Gone@[public]": fill(queues, count, where)


def bodies(queues, queue: str) -> list[int]:
    with queues.connect() as database:
        rows = database.driver_connection.execute(f'SELECT body FROM public."{queue}"').fetchall()
    return sorted(int(row[0]) for row in rows)


def test_the_doctor_finds_nothing_wrong_with_a_machine_that_runs_these_tests(queues, cli):
    queues.make()

    code, found, _ = cli("doctor", "--json")

    assert (code, found["healthy"]) == (OK, True), found
    states = {check["name"]: check["found"] for check in found["checks"]}
    assert (
        states["session"].startswith("Spark 4.")
        and "pyarrow" in states["worker"]
        and "can be streamed" in states["database"]
    )


# ---------------------------------------------------------------------------------------------- archive
@pytest.mark.spark_promise
def test_a_tail_archives_what_came_since_and_leaves_the_queue_alone(queues, cli, tmp_path):
    queue, out = queues.make(), tmp_path / "out"
    queues.send(queue, [b"%d" % n for n in range(50)], audit_row()[5])

    first = cli("archive", queue, out, "--max-rows", 20)
    queues.send(queue, [b"%d" % n for n in range(50, 60)])
    second = cli("archive", queue, out)

    assert [(code, counts["messages"]) for code, counts, _ in (first, second)] == [(OK, 50), (OK, 10)]
    assert first[1]["batches"] == 3
    assert queues.archived(out) == list(range(60)) and queues.depth(queue) == 60
    queues.send(queue, [b"late"])
    code, counts, _ = cli("verify", out, queue)
    assert (code, counts["messages"], counts["missed"], counts["not_archived_yet"], counts["duplicates"]) == (
        OK,
        60,
        0,
        1,
        0,
    )


@pytest.mark.spark_promise
def test_a_drain_takes_the_messages_and_leaves_nothing_in_the_spool(queues, cli, tmp_path):
    queue, out = queues.make(), tmp_path / "out"
    queues.send(queue, [b"%d" % n for n in range(50)])

    code, counts, _ = cli("archive", queue, out, "--drain", "--max-rows", 20)

    assert (code, counts["messages"], counts["dropped_from_spool"]) == (OK, 50, 10)
    assert queues.archived(out) == list(range(50))
    assert (queues.depth(queue), queues.spooled(queue)) == (0, 0)
    assert cli("verify", out, queue)[1]["spooled"] == 0


def test_another_archive_may_not_drain_unless_it_is_told_to_take_over(queues, cli, archive_without_spark, tmp_path):
    queue, out, other = queues.make(), tmp_path / "out", tmp_path / "other"
    queues.send(queue, [b"1", b"2"])
    archive_without_spark(queue, out, "--drain")
    queues.send(queue, [b"3"])

    code, _, said = cli("archive", queue, other, "--drain")
    assert code == FAILED and queue in said and "Traceback" not in said

    assert cli("archive", queue, tmp_path / "third", "--drain", "--take-over")[0] == OK
    assert (queues.archived(out), queues.archived(tmp_path / "third")) == ([1, 2], [3])


@pytest.mark.spark_promise
@pytest.mark.parametrize("mode", ["--tail", "--drain"])
def test_a_batch_that_was_committed_and_not_noted_by_spark_is_not_added_again(queues, cli, tmp_path, mode):
    queue, out = queues.make(), tmp_path / "out"
    queues.send(queue, [b"%d" % n for n in range(30)])  # without times: their day is that of archived_at
    # as if it had been killed after writing the batch: the last commit is not in Spark's log
    from rowpost.spark.jobs import archive as archiving

    job = archiving.ArchiveJob(queue, str(out), queues.environment, mode.removeprefix("--"), max_rows=20)
    archiving.follow(archiving.start(queues.spark, job))
    before = {(row["id"], row["archived_at"]) for row in archived_rows(out)}
    (Path(job.checkpoint_location) / "commits" / "1").unlink()
    (Path(job.checkpoint_location) / "commits" / ".1.crc").unlink(missing_ok=True)

    code, counts, _ = cli("archive", queue, out, mode)

    assert (code, counts["messages"]) == (OK, 0)  # the rows were not even read again
    assert {(row["id"], row["archived_at"]) for row in archived_rows(out)} == before
    assert queues.archived(out) == list(range(30))


def test_a_checkpoint_of_another_queue_is_refused_in_words(queues, cli, tmp_path):
    one, other = queues.make(), queues.make()
    for queue in (one, other):
        queues.send(queue, [b"1"])
    cli("archive", one, tmp_path / "out", "--checkpoint", tmp_path / "checkpoint")

    code, counts, said = cli("archive", other, tmp_path / "out", "--checkpoint", tmp_path / "checkpoint")

    assert (code, counts) == (FAILED, None)
    assert (
        one in said and other in said and "checkpoint" in said and "Traceback" not in said and "Exception" not in said
    )


def test_a_queue_that_is_not_there_is_said_before_anything_is_made(cli, queues, tmp_path):
    code, _, said = cli("archive", "NoSuch", tmp_path / "out")

    assert code == NOT_FOUND and "'NoSuch'" in said and not (tmp_path / "out").exists()


def test_failures_of_a_queue_as_it_is_and_live_metrics(queues, cli, failed, tmp_path):
    queue = failed(3)
    assert cli("failures", "--queue", queue)[1]["messages"] == 3

    audit = queues.make()
    queues.send(audit, [b"1"] * 5, audit_row()[5])
    for hours in (5, 9):
        queues.send(audit, [b"1"], audit_row(sent=NOON + timedelta(hours=hours))[5])
    assert cli("metrics", "--live", audit, "--out", tmp_path / "live")[0] == OK
    assert sorted((row["hour"].hour, row["messages"]) for row in archived_rows(tmp_path / "live")) == [(12, 5), (17, 1)]
    shutil.rmtree(tmp_path / "live" / "_rowpost" / "checkpoint")
    code, _, said = cli("metrics", "--live", audit, "--out", tmp_path / "live")
    assert code == FAILED and audit in said and "--out" in said  # a new checkpoint would count the hours again


# ---------------------------------------------------------------------------------------------- replay
@pytest.fixture(scope="module")
def forty(queues, archive_without_spark, tmp_path_factory):
    """An archive of failed messages, and the queue in which they failed."""
    out, sales = tmp_path_factory.mktemp("forty") / "out", queues.make()
    archive_without_spark(fill(queues, 40, f"{sales}@[public]"), out)
    return out, sales


@pytest.fixture
def archived(queues, forty, tmp_path):
    """A copy of that archive, and the queue, which is empty."""
    out, sales = forty
    with queues.connect() as database:
        database.driver_connection.execute(f'DELETE FROM public."{sales}"')
    return Path(shutil.copytree(out, tmp_path / "out")), sales


@pytest.mark.spark_promise
def test_a_replay_sends_what_is_asked_for_once_however_often_it_runs(queues, cli, archived):
    out, sales = archived
    asked = (
        "replay",
        out,
        sales,
        "--job",
        "k1",
        "--where",
        "cast(cast(body as string) as int) < 30",
        "--ramp",
        "1,5",
        "--pause",
        "0s",
    )

    first = cli(*asked)
    second = cli(*asked)

    assert [(code, counts["sent_now"], counts["steps"]) for code, counts, _ in (first, second)] == [
        (OK, 30, 3),
        (OK, 0, 3),
    ]
    assert bodies(queues, sales) == list(range(30))


@pytest.mark.spark_promise
def test_a_replay_that_was_stopped_sends_the_rest_of_what_it_chose(queues, archive_without_spark, archived, failed):
    out, sales = archived
    asked = replaying.Replay("k2", sales, rate=2.0)
    waits = []

    def stop_after_two(seconds):
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt

    def found(names):
        return {name: name for name in names}

    with pytest.raises(KeyboardInterrupt):
        replaying.run(
            queues.spark,
            str(out),
            asked,
            environment=queues.environment,
            resolve_queues=found,
            clock=lambda: 0.0,
            sleep=stop_after_two,
        )
    # as if it had been killed after a step was sent, and before that was noted
    sent = out / "_rowpost" / "replays" / "k2" / "sent.json"
    sent.write_text(json.dumps({"steps": 1, "messages": 10}))
    archive_without_spark(failed(7), out)  # the archive has grown meanwhile
    done = replaying.run(
        queues.spark, str(out), asked, environment=queues.environment, resolve_queues=found, sleep=lambda seconds: None
    )

    assert waits == [5.0, 10.0]
    assert (done["messages"], done["sent_before"]) == (40, 10)
    assert bodies(queues, sales) == list(range(40))


def test_a_replay_sends_what_its_rehearsal_said_although_a_run_with_another_filter_was_killed_before(
    queues, cli, archived, monkeypatch
):
    out, sales = archived
    create = ArchiveFolder.create

    def killed(folder, name, document):
        if name.endswith("plan.json"):
            raise KeyboardInterrupt
        return create(folder, name, document)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(ArchiveFolder, "create", killed)
        wrong = replaying.Replay("d0", sales, ramp=(1, 10))
        replaying.run(
            queues.spark, str(out), wrong, environment=queues.environment, resolve_queues=lambda names: {sales: sales}
        )
    left = [each.state for each in list_replays(ArchiveFolder(str(out)))]
    asked = ("replay", out, sales, "--job", "d0", "--where", "cast(cast(body as string) as int) < 5")
    said = cli(*asked, "--dry-run")[1]
    sent = cli(*asked)[1]

    assert left == ["choosing"]
    assert said["messages"] == sent["sent_now"] == 5
    assert bodies(queues, sales) == list(range(5))
    assert [path.name for path in (out / "_rowpost" / "replays" / "d0").iterdir() if path.is_dir()] == []


def test_a_rehearsal_counts_by_destination_and_type_and_stores_nothing_and_the_replay_sends_back_to_where_the_messages_failed(
    queues, cli, archived
):
    out, sales = archived
    where = ("--where", "cast(cast(body as string) as int) < 30")

    code, counts, _ = cli("replay", out, "--to-original", "--job", "d1", *where, "--dry-run")
    after_the_rehearsal = bodies(queues, sales)
    stored = (out / "_rowpost" / "replays").exists()
    sent = cli("replay", out, "--to-original", "--job", "d1", *where)[1]

    assert (code, counts["messages"], counts["sent_before"], counts["dry_run"]) == (OK, 30, 0, True)
    assert counts["would_send"] == [
        {"queue": sales, "message_type": "Shop.PlaceOrder", "messages": 30, "body_bytes": 50}
    ]
    assert (after_the_rehearsal, stored) == ([], False)
    assert (sent["queues"], sent["sent_now"], bodies(queues, sales)) == ([sales], 30, list(range(30)))
    assert cli("replay", out, "--to-original", "--job", "d1", *where, "--dry-run")[1]["sent_before"] == 30


def test_a_rehearsal_of_a_replay_that_was_stopped_counts_the_rest_also_if_all_of_it_was_erased(queues, cli, archived):
    out, sales = archived
    asked = replaying.Replay("d2", sales, rate=2.0)

    def stop(seconds):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replaying.run(
            queues.spark,
            str(out),
            asked,
            environment=queues.environment,
            resolve_queues=lambda names: {sales: sales},
            clock=lambda: 0.0,
            sleep=stop,
        )
    _, counts, _ = cli("replay", out, sales, "--job", "d2", "--rate", 2, "--dry-run")
    code, _, said = cli("replay", out, sales, "--job", "d2", "--rate", 3, "--dry-run")
    cli("erase", out, "--where", "true", "--reason", "no message of the replay stays")
    erased = cli("replay", out, sales, "--job", "d2", "--rate", 2, "--dry-run")

    assert (counts["messages"], counts["sent_before"]) == (30, 10)
    assert (code, "the rate differ" in said) == (FAILED, True)
    assert (erased[0], erased[1]["messages"], erased[1]["sent_before"]) == (OK, 0, 10)


def test_a_replay_waits_while_its_destination_has_too_many_messages_waiting(queues, archived):
    out, sales = archived
    queues.send(sales, [b"100", b"101"])
    seen = []

    def depth(queue):
        seen.append(queues.depth(queue))
        return seen[-1]

    def receive(seconds):  # as a worker does while the replay waits
        with queues.connect() as database:
            database.call("purge_queue", sales, count=4)

    asked = replaying.Replay("d3", sales, limit=15, max_depth=10)
    done = replaying.run(
        queues.spark,
        str(out),
        asked,
        environment=queues.environment,
        resolve_queues=lambda names: {sales: sales},
        depth=depth,
        sleep=receive,
    )

    assert (done["sent_now"], done["steps"]) == (15, 3)
    assert max(seen) <= 10
    assert len(seen) > 3  # it has waited


def test_a_step_of_the_ramp_that_is_larger_than_the_depth_is_refused(cli, archived):
    out, sales = archived

    code, _, said = cli("replay", out, sales, "--job", "d4", "--ramp", "1,50", "--max-depth", 20)

    assert code == USAGE and "at most 20 may wait" in said


def test_a_replay_by_the_command_line_respects_the_depth(queues, cli, archived):
    out, sales = archived

    assert cli("replay", out, sales, "--job", "d5", "--limit", 8, "--max-depth", 16)[1]["sent_now"] == 8
    assert bodies(queues, sales) == list(range(8))


def test_a_used_key_with_other_data_is_refused_by_the_plan_and_by_the_ledger(queues, cli, archived):
    out, sales = archived
    cli("replay", out, sales, "--job", "k3", "--limit", 5)

    code, _, said = cli("replay", out, sales, "--job", "k3", "--limit", 6)
    assert code == FAILED and "'k3'" in said and "limit" in said

    shutil.rmtree(out / "_rowpost" / "replays")  # the plan was deleted
    code, _, said = cli("replay", out, sales, "--job", "k3", "--limit", 6)
    assert code == FAILED and "k3" in said and "Traceback" not in said
    assert len(bodies(queues, sales)) == 5


def test_a_replay_into_a_queue_that_does_not_exist_sends_nothing(
    cli, archive_without_spark, archived, failed, tmp_path
):
    out, _ = archived
    code, _, said = cli("replay", out, "NoSuch", "--job", "k4")
    assert code == NOT_FOUND and "'NoSuch'" in said

    other = tmp_path / "other"
    archive_without_spark(failed(2), other)
    code, _, said = cli("replay", other, "--to-original", "--job", "k5")
    assert code == NOT_FOUND and "Gone" in said
    assert not (other / "_rowpost" / "replays").exists()


def test_a_replay_may_run_in_a_thread_of_its_own(queues, archived):
    out, sales = archived

    with ThreadPoolExecutor(1) as thread:
        asked = replaying.Replay("k9", sales)
        done = thread.submit(replaying.run, queues.spark, str(out), asked, environment=queues.environment,
                             resolve_queues=lambda names: {name: name for name in names}).result()  # fmt: skip

    assert done["sent_now"] == 40 == queues.depth(sales)


def test_a_key_that_chose_nothing_may_be_used_again(queues, cli, archived):
    out, sales = archived

    assert cli("replay", out, sales, "--job", "k8", "--where", "endpoint = 'Nobody'")[1]["messages"] == 0
    assert cli("replay", out, sales, "--job", "k8", "--limit", 1)[1]["sent_now"] == 1


def test_a_filter_that_cannot_be_read_is_a_mistake_in_the_command(cli, archived):
    out, sales = archived

    code, _, said = cli("replay", out, sales, "--job", "k7", "--where", "no_such = 1")

    assert code == USAGE and "no_such" in said and "exception_type" in said and "Traceback" not in said
