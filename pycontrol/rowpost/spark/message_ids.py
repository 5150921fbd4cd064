"""Compute ids of messages from the rows that they are made of, so that a repeated job sends the same messages."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["message_id"]

_KEY_SEPARATOR = "\x1f"


def message_id(job: str, *key: Column | str) -> Column:
    """Return a column with a UUID of version 5 of a job and of the columns that identify a row, as text.

    The same job and key give the same id in each run, on each machine and as `uuid.uuid5` in Python:
    `uuid5(uuid5(NAMESPACE_OID, f"rowpost load {job}"), "\\x1f".join(key))`, with the key's values as Spark casts them
    to text. Rows with the same key get the same id. The job should be the `jobKey` of the write. If a column of the key
    is null, the query fails, because a message without an id would get a new one in each run. Raises ValueError without
    a column.
    """
    from pyspark.sql import functions as F

    if not key:
        raise ValueError("message_id needs at least one column that identifies a row")
    columns = [(F.col(each) if isinstance(each, str) else each).cast("string") for each in key]
    # null if one is null
    text = F.concat(*[part for column in columns for part in (F.lit(_KEY_SEPARATOR), column)][1:])
    missing = F.raise_error(
        F.lit(f"message_id: a row of the job {job!r} has a null in its key. Remove such rows, or choose another key.")
    )
    namespace = uuid.uuid5(uuid.NAMESPACE_OID, f"rowpost load {job}")
    digits = F.sha1(F.concat(F.unhex(F.lit(namespace.hex)), F.encode(F.coalesce(text, missing), "UTF-8")))
    variant = F.translate(F.substring(digits, 17, 1), "0123456789abcdef", "89ab" * 4)
    parts = (F.substring(digits, 1, 8), F.substring(digits, 9, 4), F.concat(F.lit("5"), F.substring(digits, 14, 3)),
             F.concat(variant, F.substring(digits, 18, 3)), F.substring(digits, 21, 12))  # fmt: skip
    return F.concat_ws("-", *parts)
