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
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

__all__ = ["BUFFER_BYTES", "buffers", "merged"]

#: The uncompressed size of the rows that are sorted in memory, which become one row group.
BUFFER_BYTES = 32 << 20
_KEY, _ORDER = "conversation_id", "row_version"
_BLOCK_BYTES = 1 << 20  # the part of a run that is in memory
_MOST_RUNS = 64  # a merged file of 128 MB has about 30
_Run = tuple[pa.RecordBatch, Iterator[pa.RecordBatch]]


def merged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows by conversation, those without one last. Rows that are not messages of an archive keep their order.

    All batches have one schema. The memory is that of BUFFER_BYTES, twice, and of a block for each run.
    """
    runs: list[_Run] = []  # with the block that is in memory
    for rows in buffers(batches):
        if not {_KEY, _ORDER} <= set(rows.schema.names):
            yield from rows.to_batches()
        elif not runs and rows.nbytes < BUFFER_BYTES:  # these are all rows
            yield from _sorted(rows).to_batches()
        else:
            blocks = _spilled(_sorted(rows))
            runs.append((next(blocks), blocks))
        if len(runs) == _MOST_RUNS:
            yield from _merged(runs)
            runs = []
    yield from _merged(runs)


def _merged(runs: Sequence[_Run]) -> Iterator[pa.RecordBatch]:
    while runs:
        last = min(_place(block, len(block) - 1) for block, _ in runs)  # all rows up to this one are in memory
        taken, left = [], []
        for block, blocks in runs:
            cut = bisect.bisect_right(range(len(block)), last, key=partial(_place, block))
            taken.append(block.slice(0, cut))
            rest = block.slice(cut) if cut < len(block) else next(blocks, None)
            left += [] if rest is None else [(rest, blocks)]
        yield from _sorted(pa.Table.from_batches(taken)).to_batches()
        runs = left


def _place(block: pa.RecordBatch, row: int) -> tuple[bool, str, int]:
    """Return the place of a row in the order."""
    key = block.column(_KEY)[row].as_py()
    return key is None, key or "", block.column(_ORDER)[row].as_py()


def _sorted(rows: pa.Table) -> pa.Table:
    return rows.take(pc.sort_indices(rows, sort_keys=[(_KEY, "ascending"), (_ORDER, "ascending")]))


def buffers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Collect batches to tables of BUFFER_BYTES or a bit more; the last one has less."""
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


def _spilled(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Write sorted rows to a temporary file, and yield them in blocks."""
    with tempfile.TemporaryFile() as file:
        count = max(1, len(rows) * _BLOCK_BYTES // max(rows.nbytes, 1))
        options = ipc.IpcWriteOptions(compression="lz4")
        with ipc.new_stream(pa.PythonFile(file, "w"), rows.schema, options=options) as out:
            out.write_table(rows, max_chunksize=count)
        del rows  # while the blocks are read, the memory is needed for other runs
        file.seek(0)
        yield from ipc.open_stream(pa.PythonFile(file, "r"))
