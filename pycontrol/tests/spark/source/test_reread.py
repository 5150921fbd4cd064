"""What a task keeps of the rows that it has passed to Spark. No Spark is started here."""

import pyarrow as pa

from rowpost.archive.source.reading import _SeenRowVersions


def imported(rows: int) -> pa.RecordBatch:
    """A batch as a database driver hands it over: its columns are one piece of memory."""
    batch = pa.RecordBatch.from_pydict({"row_version": pa.array(range(rows), pa.int64()), "body": [bytes(1000)] * rows})
    return pa.record_batch(_Handed(batch))


class _Handed:
    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__()


def test_row_versions_are_kept_and_bodies_are_not():
    seen, before = _SeenRowVersions(), pa.total_allocated_bytes()
    seen.begin()

    for _ in range(10):
        assert seen.unseen(imported(1000)).num_rows == 1000

    assert pa.total_allocated_bytes() - before < 200_000


def test_rows_that_were_passed_on_are_skipped_when_the_range_is_read_again():
    seen = _SeenRowVersions()
    seen.begin()
    seen.unseen(imported(3))

    seen.begin()

    assert seen.unseen(imported(5))["row_version"].to_pylist() == [3, 4]
