"""Sort the rows of an archive's files by conversation, so that a search for a conversation reads a few pages of few
files.

`merged` sorts more rows than fit into memory, for files that replace several others: a file then has each conversation
in one row group, or in neighbours. Messages of a conversation, and messages without one, keep the order of their row
versions, which is the order of their arrival.

It writes sorted runs to temporary files that have no name, and merges them. A temporary file is in the folder that
TMPDIR names, is compressed, and is gone when the process ends, however it ends.
"""

from __future__ import annotations

import bisect
import tempfile
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

__all__ = ["BUFFER_BYTES", "merged"]

#: The uncompressed size of the rows that are sorted in memory, which become one row group.
BUFFER_BYTES = 32 << 20
_KEY, _ORDER = "conversation_id", "row_version"
_BLOCK_BYTES = 1 << 20  # the part of a run that is in memory
_MOST_RUNS = 64  # a merged file of 128 MB has about 30


def merged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows by conversation, those without one last. Rows that are not messages of an archive keep their order.

    All batches have one schema. The memory is that of BUFFER_BYTES, twice, and of a block for each run.
    """
    runs: list[_Run] = []
    for rows in _buffers(batches):
        if not {_KEY, _ORDER} <= set(rows.schema.names):
            yield from rows.to_batches()
        elif not runs and rows.nbytes < BUFFER_BYTES:  # these are all rows
            yield from _sorted(rows).to_batches()
        else:
            runs.append(_Run(_sorted(rows)))
        if len(runs) == _MOST_RUNS:
            yield from _merged(runs)
            runs = []
    yield from _merged(runs)


def _merged(runs: Sequence[_Run]) -> Iterator[pa.RecordBatch]:
    while runs:
        last = min(run.last for run in runs)  # all rows up to this one are in memory
        yield from _sorted(pa.Table.from_batches([run.take_until(last) for run in runs])).to_batches()
        runs = [run for run in runs if run.has_rows]


def _sorted(rows: pa.Table) -> pa.Table:
    return rows.take(pc.sort_indices(rows, sort_keys=[(_KEY, "ascending"), (_ORDER, "ascending")]))


def _buffers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    buffered: list[pa.RecordBatch] = []
    size = 0
    for batch in filter(len, batches):
        buffered.append(batch)
        size += batch.nbytes
        if size >= BUFFER_BYTES:
            yield pa.Table.from_batches(buffered)
            buffered, size = [], 0
    if buffered:
        yield pa.Table.from_batches(buffered)


class _Run:
    """Sorted rows in a temporary file, of which one block is in memory."""

    def __init__(self, rows: pa.Table) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it is open as long as rows are left
        count = max(1, len(rows) * _BLOCK_BYTES // max(rows.nbytes, 1))
        with ipc.new_stream(
            pa.PythonFile(self._file, "w"), rows.schema, options=ipc.IpcWriteOptions(compression="lz4")
        ) as out:
            out.write_table(rows, max_chunksize=count)
        self._file.seek(0)
        self._blocks = iter(ipc.open_stream(pa.PythonFile(self._file, "r")))
        self._block = next(self._blocks)

    @property
    def has_rows(self) -> bool:
        """Whether rows are left. If there are none, the temporary file is closed."""
        if len(self._block) == 0:
            following = next(self._blocks, None)
            if following is None:
                self._file.close()
                return False
            self._block = following
        return True

    @property
    def last(self) -> tuple[bool, str, int]:
        """The place in the order of the last row in memory."""
        return self._place(len(self._block) - 1)

    def take_until(self, place: tuple[bool, str, int]) -> pa.RecordBatch:
        """Remove the rows in memory up to this place, and return them."""
        count = bisect.bisect_right(range(len(self._block)), place, key=self._place)
        taken, self._block = self._block.slice(0, count), self._block.slice(count)
        return taken

    def _place(self, row: int) -> tuple[bool, str, int]:
        key = self._block.column(_KEY)[row].as_py()
        return key is None, key or "", self._block.column(_ORDER)[row].as_py()
