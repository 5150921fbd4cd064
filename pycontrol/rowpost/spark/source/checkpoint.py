"""Read a stream's checkpoint: the last committed offset, the last batch of a finished drain, and what a tail has left.

Spark reports a batch as committed to its source only when it builds the next batch. The last batch of a run would
therefore stay in the spool until new messages arrive. `finalize` reads Spark's own commit log and drops that batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from rowpost.archive.folder import ArchiveFolder
from rowpost.archive.identity import CheckpointProgress, Offset, by_epoch, by_queue
from rowpost.archive.source.connection import PatientConnection
from rowpost.archive.source.queue_stream import Held, held_above
from rowpost.database.connection import Connection
from rowpost.spark.source.options import in_environment, read_options

__all__ = ["Checkpoint", "committed_offset", "finalize", "what_is_held"]

Result = TypeVar("Result")


@dataclass(frozen=True)
class Checkpoint:
    """What Spark has stored of a query, in a folder or at a URI that pyarrow can read."""

    place: str

    @cached_property
    def query(self) -> str | None:
        """The query's id. None before its first start."""
        text = self._text("metadata")
        return None if text is None else json.loads(text)["id"]

    def last(self, folder: str) -> int:
        """Return the number of the last batch in `offsets` (planned) or `commits`, or -1."""
        paths = ArchiveFolder(self.place).contents(folder, recursive=False)  # none before the first batch
        names = [path.rpartition("/")[2] for path, _ in paths]
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def offset(self, number: int) -> dict[str, Any] | None:
        """Return the offset at the end of a batch. None if it is not stored, or not any more."""
        text = None if number < 0 else self._text(f"offsets/{number}")
        line = "-" if text is None else text.splitlines()[2]  # after the version and metadata, one line for each source
        return None if line == "-" else json.loads(line)

    def watermark_ms(self, number: int) -> int:
        """Return the event-time watermark of a batch, in milliseconds since 1970; 0 if it is not stored."""
        text = self._text(f"offsets/{number}")
        return 0 if text is None else int(json.loads(text.splitlines()[1])["batchWatermarkMs"])

    def progress(self) -> CheckpointProgress:
        """Return what an archive compares with its table."""

        def offsets(number: int) -> Mapping[str, Offset] | None:
            found = self.offset(number)
            return None if found is None else by_epoch(found)

        return CheckpointProgress(self.place, self.query, self.last("offsets"), self.last("commits"), offsets)

    def _text(self, file: str) -> str | None:
        """Read a file. Returns None if it does not exist."""
        try:
            return ArchiveFolder(self.place).text(file)
        except FileNotFoundError:
            return None


def committed_offset(checkpoint: str | Path) -> dict[str, Any] | None:
    """Return the offset of the last batch that a query has committed. Returns None before its first commit."""
    stored = Checkpoint(str(checkpoint))
    return stored.offset(stored.last("commits"))


def finalize(
    options: Mapping[str, str], checkpoint: str | Path, *, confirmed: Mapping[str, Offset] | None = None
) -> int:
    """Delete the committed messages of an ended drain from the spool, and return their number.

    Messages above the `confirmed` offsets, by the identity of the queue, stay there. Raises SpoolTaken if the spool
    belongs to another stream.
    """

    def drop(database: Connection, queue: str, offset: Offset) -> int:
        owner, known = offset["owner"], (confirmed or {}).get(offset["queue"], offset)
        upto = min(offset["number"], known["number"]) if known.get("owner") == owner else 0
        return int(database.call("drop_spool", queue, owner=owner, upto=upto)[0].dropped)

    return sum(_for_each_queue({**options, "mode": "drain"}, checkpoint, "owner", drop))


def what_is_held(options: Mapping[str, str], checkpoint: str | Path) -> Held:
    """Return what the last run of a tail could not read, because transactions were open. Raises DatabaseUnavailable."""
    return Held.of_all(_for_each_queue(options, checkpoint, "polls", held_above))


def _for_each_queue(
    options: Mapping[str, str],
    checkpoint: str | Path,
    key: str,
    action: Callable[..., Result],
) -> list[Result]:
    """Run an action for each queue whose committed offset has a key."""
    asked = in_environment(read_options(options, stream=True))
    offsets = by_queue(committed_offset(checkpoint), asked.queue)
    with closing(PatientConnection(asked)) as connection:
        return [
            connection.run(partial(action, queue=queue, offset=offset))
            for queue, offset in offsets.items()
            if offset.get(key)
        ]
