"""A stream of `--every` starts again after an error that may pass."""

import pytest
from pyspark.errors import StreamingQueryException

from rowpost.errors import DatabaseUnavailable
from rowpost.spark.explain import MAX_RESTARTS, keep_running
from rowpost.spark.jobs.archive import ArchiveJob, BatchWriter, read_archive, run

SLOW_START = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"
OURS = "[STREAM_FAILED] Query terminated with exception: Traceback (most recent call last):\nrowpost.errors.PermissionDenied: The login has no right."
NO_MEMORY = "[STREAM_FAILED] Query terminated with exception: java.lang.OutOfMemoryError: Java heap space"


def failing(errors, batches=()):
    """A stream that ends with these errors, one after the other, and then well. Returns it and its batches."""
    left, counted, added = list(errors), {}, list(batches)

    def stream():
        if added:
            counted[len(counted)] = added.pop(0)
        if left:
            raise left.pop(0)
        return "done"

    return stream, counted


TASK_FAILED = "[STREAM_FAILED] Query terminated with exception: Traceback:\nrowpost.errors.SparkFailed: Spark failed: Job aborted due to stage failure"


def test_a_job_that_fails_within_a_batch_is_started_again():
    stream, counted = failing([StreamingQueryException(TASK_FAILED)])

    assert keep_running(stream, counted, "audit", say=lambda text: None, sleep=lambda seconds: None) == "done"


def test_each_restart_waits_twice_as_long_and_prints_one_line():
    stream, counted = failing([StreamingQueryException(SLOW_START)] * 3)
    said, waits = [], []

    done = keep_running(stream, counted, "audit", say=said.append, sleep=waits.append)

    assert (done, waits) == ("done", [1, 2, 4])
    assert (
        said[0].startswith("the stream of audit ended: ")
        and "failed to connect back" in said[0]
        and "restart 1 of 5" in said[0]
    )
    assert [text.count("\n") for text in said] == [0, 0, 0]


def test_after_some_restarts_in_a_row_without_a_batch_the_error_is_raised():
    stream, counted = failing([StreamingQueryException(SLOW_START)] * (MAX_RESTARTS + 1))
    waits = []

    with pytest.raises(StreamingQueryException):
        keep_running(stream, counted, "audit", say=lambda text: None, sleep=waits.append)

    assert len(waits) == MAX_RESTARTS


def test_a_batch_ends_a_row_of_restarts():
    failures = 3 * MAX_RESTARTS
    stream, counted = failing([StreamingQueryException(SLOW_START)] * failures, batches=[1] * failures)
    waits = []

    assert keep_running(stream, counted, "audit", say=lambda text: None, sleep=waits.append) == "done"
    assert waits == [1] * failures


@pytest.mark.parametrize(
    "error",
    [
        StreamingQueryException(OURS),
        StreamingQueryException(NO_MEMORY),
        DatabaseUnavailable("gone"),
        ConnectionRefusedError(),
        KeyboardInterrupt(),
    ],
    ids=["ours", "memory", "server", "jvm", "interrupt"],
)
def test_what_cannot_pass_is_raised_at_once(error):
    stream, counted = failing([error])
    said = []

    with pytest.raises(type(error)):
        keep_running(stream, counted, "audit", say=said.append, sleep=said.append)

    assert said == []


def test_an_archive_continues_after_an_error_that_passes(spark, queues, tmp_path, monkeypatch, capsys):
    queue, out, failures = queues.make(), str(tmp_path / "out"), [OSError(28, "No space left on device")]
    queues.send(queue, [b"1", b"2", b"3"])
    write = BatchWriter.__call__

    def sometimes(self, df, batch_id):
        if failures:
            raise failures.pop()
        write(self, df, batch_id)

    def stop_at_the_end(batches, messages):
        if messages == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(BatchWriter, "__call__", sometimes)
    with pytest.raises(KeyboardInterrupt):
        run(spark, ArchiveJob(queue, out, queues.environment, every="1 second"), stop_at_the_end)

    assert sorted(bytes(row.body) for row in read_archive(spark, out).collect()) == [b"1", b"2", b"3"]
    said = capsys.readouterr().err
    assert said.count("starts again in 1 seconds") == 1 and queue in said
