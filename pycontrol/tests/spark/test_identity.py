"""One archive, one archiver for each queue: a checkpoint and a table that do not belong together are refused, and nothing is lost or doubled."""

import shutil

import pytest

from tests.support.spark.messages import audit_row

OK, FAILED = 0, 7


def numbered(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


@pytest.mark.parametrize("mode", ["--tail", "--drain"])
def test_a_checkpoint_that_is_older_than_its_table_is_refused_and_the_way_out_loses_and_doubles_nothing(
    queues, cli, tmp_path, mode
):
    queue, out, checkpoint, snapshot = queues.make(), tmp_path / "out", tmp_path / "c", tmp_path / "snapshot"
    asked = ("archive", queue, out, mode, "--checkpoint", checkpoint)
    queues.send(queue, numbered(0, 10))
    cli(*asked)
    shutil.copytree(checkpoint, snapshot)
    queues.send(queue, numbered(10, 17))
    cli(*asked)
    queues.send(queue, numbered(17, 20))
    shutil.rmtree(checkpoint)
    shutil.copytree(snapshot, checkpoint)  # as a restored volume

    code, counts, said = cli(*asked)

    assert (code, counts, "Traceback" in said) == (FAILED, None, False)
    assert str(checkpoint) in said and queue in said and "--checkpoint" in said
    assert (queues.depth(queue), queues.spooled(queue)) == ((20, 0) if mode == "--tail" else (3, 0))
    shutil.rmtree(checkpoint)
    code, counts, _ = cli(*asked)
    assert (code, counts["messages"], queues.archived(out)) == (OK, 3, list(range(20)))


@pytest.mark.parametrize("mode", ["--tail", "--drain"])
def test_a_table_that_is_older_than_its_checkpoint_is_said_with_the_number_of_batches(queues, cli, tmp_path, mode):
    queue, out, checkpoint, snapshot = queues.make(), tmp_path / "out", tmp_path / "c", tmp_path / "snapshot"
    asked = ("archive", queue, out, mode, "--max-rows", 3, "--checkpoint", checkpoint)
    queues.send(queue, numbered(0, 3))
    cli(*asked)
    shutil.copytree(out, snapshot)
    queues.send(queue, numbered(3, 9))
    cli(*asked)
    shutil.rmtree(out)
    shutil.copytree(snapshot, out)
    queues.send(queue, numbered(9, 10))

    code, _, said = cli(*asked)

    assert code == FAILED and "2 batches" in said and str(checkpoint) in said and "Traceback" not in said
    shutil.rmtree(checkpoint)
    assert cli(*asked)[0] == OK
    assert queues.archived(out) == (
        list(range(10)) if mode == "--tail" else [0, 1, 2, 9]
    )  # a drained message is in no queue any more


def test_a_queue_that_is_archived_with_others_later_continues_where_it_was_whatever_the_order_of_names(
    queues, cli, tmp_path
):
    one, other, out = queues.make(), queues.make(), tmp_path / "out"
    for queue in (one, other):
        queues.send(queue, numbered(0, 4), audit_row()[5])

    first = cli("archive", one, out)
    queues.send(one, numbered(4, 6), audit_row()[5])
    both = cli("archive", f"{one},{other}", out)
    queues.send(one, numbered(6, 7), audit_row()[5])
    turned = cli("archive", f"{other},{one}", out)
    alone = cli("archive", one, out)

    assert [(code, counts["messages"]) for code, counts, _ in (first, both, turned)] == [(OK, 4), (OK, 6), (OK, 1)]
    assert alone[0] == FAILED and one in alone[2] and "--checkpoint" in alone[2]
    assert queues.archived(out) == sorted([*range(7), *range(4)])
