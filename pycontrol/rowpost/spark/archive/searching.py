"""Search a file for texts: its bytes, and the values of a Parquet file, which are compressed in it."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ArrowInvalid, parquet

from rowpost.archive.folder import ArchiveFolder

__all__ = ["contains"]

_CHUNK_BYTES = 8 << 20
_OVERLAP_BYTES = 4096  # longer than any text that is searched for
_ROWS = 1024


def contains(root: str, path: str, pattern: str) -> bool:
    """Whether a file holds a text that matches a regular expression, in its bytes or in a value of a text or binary
    column.

    A file that was deleted holds nothing.
    """
    compiled = re.compile(pattern.encode())
    try:
        opened = ArchiveFolder(root).open(path)
    except FileNotFoundError:
        return False
    with opened as file:
        before = b""
        while chunk := file.read(_CHUNK_BYTES):
            if compiled.search(before + chunk):
                return True
            before = chunk[-_OVERLAP_BYTES:]
        if not path.endswith(".parquet"):
            return False
        try:
            rows = parquet.ParquetFile(file)
        except ArrowInvalid:  # incomplete, so only its bytes can be searched
            return False
        return any(
            _in_column(column, pattern) for batch in rows.iter_batches(batch_size=_ROWS) for column in batch.columns
        )


def _in_column(column: pa.Array, pattern: str) -> bool:
    """Whether a value of a column matches, also within structs, lists and maps."""
    if pa.types.is_struct(column.type):
        return any(_in_column(column.field(number), pattern) for number in range(column.type.num_fields))
    if pa.types.is_map(column.type):
        return _in_column(column.keys, pattern) or _in_column(column.items, pattern)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return _in_column(column.flatten(), pattern)
    if not (
        pa.types.is_string(column.type) or pa.types.is_binary(column.type) or pa.types.is_large_string(column.type)
    ):
        return False
    return bool(pc.any(pc.match_substring_regex(column.cast(pa.binary()), pattern)).as_py())
