"""An archive changes hands: Spark reads, continues and maintains what `rowpost archive` wrote, and the other way round."""

import json

import pytest
from typer.testing import CliRunner

from rowpost.cli.app import app
from rowpost.spark.jobs.archive import read_archive

OK, FAILED = 0, 7


def numbered(first, last):
    return [b"%d" % number for number in range(first, last)]


@pytest.mark.spark_promise
@pytest.mark.parametrize("mode", ["--tail", "--drain"])
def test_each_archiver_continues_where_the_other_one_ended(queues, cli, tmp_path, mode):
    def without_spark(*options):
        ended = CliRunner().invoke(app, ["--env", queues.environment, "archive", queue, out, mode, *options])
        return ended.exit_code, json.loads(ended.stdout)["messages"]

    queue, out = queues.make(), str(tmp_path / "archive")
    queues.send(queue, numbered(0, 10))
    first = without_spark()
    queues.send(queue, numbered(10, 15))
    with_spark = cli("archive", queue, out, mode)
    queues.send(queue, numbered(15, 18))
    third = without_spark()
    queues.send(queue, numbered(18, 20))
    old_checkpoint, _, said = cli("archive", queue, out, mode)
    compacted, _, _ = cli("compact", out)
    last = without_spark()
    verified, report, _ = cli("verify", out, queue)

    assert (first, (with_spark[0], with_spark[1]["messages"]), third, last) == ((OK, 10), (OK, 5), (OK, 3), (OK, 2))
    assert old_checkpoint == FAILED
    assert "another checkpoint has archived the queue" in said
    assert (compacted, verified, report["findings"]) == (OK, OK, 0)
    assert queues.archived(out) == list(range(20))
    assert read_archive(queues.spark, out).where("archived_at is null or not headers_valid").count() == 0
