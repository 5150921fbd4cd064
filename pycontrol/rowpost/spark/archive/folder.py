"""List and change the folder of an archive.

`ArchiveFolder` works on the folders `queue=…/day=…/batch=…` (`Batch`), and on `_rowpost`, which holds checkpoints,
replays and the journal of changes.

A `Change` replaces batches of one queue and day with one new batch or with none. Before it starts, it is written to
`_rowpost/intents`. The next command finishes an interrupted change from there. Afterwards it is in `_rowpost/journal`,
which shows what happened to each batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from urllib.parse import unquote

from pyarrow import ArrowInvalid, fs, parquet

from rowpost.errors import ArchiveNotFound, SparkFailed

__all__ = ["METADATA_FOLDER", "ArchiveFolder", "Batch", "Change"]

METADATA_FOLDER = "_rowpost"
_NEVER = datetime.min.replace(tzinfo=UTC)
_STAGING = (".spark-staging-", "_temporary")
_PARTS = ("queue", "day", "batch")


@dataclass(frozen=True)
class Batch:
    """One folder `queue=…/day=…/batch=…`. `written` is the modification time of its newest file."""

    queue: str
    day: str
    name: str
    path: str
    files: tuple[str, ...] = ()
    bytes: int = 0
    written: datetime = _NEVER

    @property
    def number(self) -> tuple[str, int] | None:
        """The query and number of a batch that a stream wrote; None for a batch that a change wrote.

        >>> Batch("audit", "2026-11-20", "1f0c2a9e-12", "").number
        ('1f0c2a9e', 12)
        """
        key, _, number = self.name.rpartition("-")
        return (key, int(number)) if number.isdigit() and not key.startswith("changed") else None


@dataclass(frozen=True)
class Change:
    """A change of the batches of one queue and day: files below `new` are moved to `place`, files in `old` are deleted.

    Paths are relative to the archive's folder. `batches` are the names of the replaced batches.
    """

    name: str
    kind: str
    queue: str
    day: str
    batches: tuple[str, ...]
    old: tuple[str, ...]
    new: str
    place: str
    rows_before: int
    rows_after: int


class ArchiveFolder:
    """An archive at a path or at a URI that pyarrow can reach, such as s3://…"""

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/")
        self.files, self._root = _filesystem(self.path)

    @cached_property
    def is_delta(self) -> bool:
        """Whether the archive is a Delta table."""
        return self._exists(f"{self._root}/_delta_log")

    def check_exists(self) -> None:
        """Raise ArchiveNotFound if there is no archive."""
        if not self._exists(self._root):
            raise ArchiveNotFound(f"There is no archive in {self.path}. `rowpost spark archive QUEUE {self.path}` creates one.")
        if not self.is_delta and not any(True for _ in self._batch_files()):
            raise ArchiveNotFound(f"The folder {self.path} is not an archive: it has no file in a folder queue=…/day=…/batch=…. Check the path.")

    def batches(self) -> list[Batch]:
        """Return all batches, ordered by queue, day and name."""
        found: dict[tuple[str, str, str], list[fs.FileInfo]] = {}
        for names, info in self._batch_files():
            found.setdefault(names, []).append(info)
        return [
            Batch(
                queue,
                day,
                name,
                path=infos[0].path.rpartition("/")[0],
                files=tuple(info.path for info in infos),
                bytes=sum(info.size for info in infos),
                written=max(info.mtime for info in infos),
            )
            for (queue, day, name), infos in sorted(found.items())
        ]

    def leftovers(self) -> list[str]:
        """Return folders that killed writers left. Readers ignore them."""
        found = set()
        for info in self._list(self._root):
            head = info.path[len(self._root) + 1 :].partition("/")[0]
            if head.startswith(_STAGING):
                found.add(head)
        return sorted(found) + [f"{METADATA_FOLDER}/new/{name}" for name in self._unfinished_new()]

    def sweep(self) -> list[str]:
        """Remove the leftovers, and return them. Call it only while no job writes to the archive."""
        found = self.leftovers()
        for name in found:
            self.files.delete_dir(f"{self._root}/{name}")
        return found

    # ---------------------------------------------------------------------------------------------- changes
    def new_place(self, name: str) -> str:
        """Return the folder for the new files of a change, relative to the archive's folder."""
        return f"{METADATA_FOLDER}/new/{name}"

    def rows(self, files: Iterable[str]) -> int:
        """Count the rows of files from their Parquet footers. Raises SparkFailed for an incomplete file."""
        counted = 0
        for path in files:
            rows = self.rows_of(path)
            if rows is None:
                raise SparkFailed(f"{path} cannot be read: the file is incomplete. `rowpost spark verify` lists all incomplete files.")
            counted += rows
        return counted

    def rows_of(self, path: str) -> int | None:
        """Count the rows of one file. Returns None for an incomplete file."""
        try:
            with self.files.open_input_file(path) as file:
                return parquet.read_metadata(file).num_rows
        except (ArrowInvalid, OSError):
            return None

    def written(self, place: str) -> list[str]:
        """Return the files that a change has written so far."""
        return [info.path for info in self._list(f"{self._root}/{place}") if info.base_name.endswith(".parquet")]

    def check_parquet(self, action: str) -> None:
        """Raise SparkFailed for a Delta table, which has its own tools."""
        if self.is_delta:
            raise SparkFailed(f"Cannot {action} {self.path}: it is a Delta table. Use Delta's own tools.")

    def change(self, change: Change) -> None:
        """Write the intent, then make the change. Raises OSError."""
        self.write(f"intents/{change.name}.json", change.__dict__)
        self._finish(change)

    def recover(self) -> int:
        """Finish interrupted changes, and return their number."""
        intents = [json.loads(text) for text in self._texts("intents")]
        for intent in intents:
            self._finish(Change(**intent))
        return len(intents)

    def unfinished(self) -> list[str]:
        """Return the names of interrupted changes."""
        return [json.loads(text)["name"] for text in self._texts("intents")]

    def journal(self) -> list[dict]:
        """Return the finished changes, the oldest first."""
        return [json.loads(text) for text in self._texts("journal")]

    def _finish(self, change: Change) -> None:
        """Make a change. Each step may have been done before, by a process that was killed afterwards."""
        source, target = f"{self._root}/{change.new}", f"{self._root}/{change.place}"
        for info in self._list(source):
            if info.is_file and info.base_name.endswith(".parquet"):
                moved = f"{target}/{info.path[len(source) + 1 :]}"
                self.files.create_dir(moved.rpartition("/")[0], recursive=True)
                self.files.move(info.path, moved)
        if self._exists(source):
            self.files.delete_dir(source)
        for old in change.old:
            if self._exists(f"{self._root}/{old}"):
                self.files.delete_file(f"{self._root}/{old}")
        for folder in {f"{self._root}/{old}".rpartition("/")[0] for old in change.old}:
            if self._exists(folder) and not any(info.base_name.endswith(".parquet") for info in self._list(folder)):
                self.files.delete_dir(folder)
        self.write(f"journal/{change.name}.json", change.__dict__)
        self.files.delete_file(f"{self._root}/{METADATA_FOLDER}/intents/{change.name}.json")

    def relative(self, path: str) -> str:
        """Return a path of the archive relative to the archive's folder."""
        return path[len(self._root) + 1 :]

    # ---------------------------------------------------------------------------------------------- metadata
    def write(self, name: str, document: dict) -> None:
        """Write a JSON file below `_rowpost` atomically."""
        path = f"{self._root}/{METADATA_FOLDER}/{name}"
        self.files.create_dir(path.rpartition("/")[0], recursive=True)
        with self.files.open_output_stream(f"{path}.tmp") as out:
            out.write(json.dumps(document, default=str).encode())
        self.files.move(f"{path}.tmp", path)

    def read(self, name: str) -> dict | None:
        """Read a JSON file below `_rowpost`. Returns None if it does not exist."""
        path = f"{self._root}/{METADATA_FOLDER}/{name}"
        return json.loads(self._text(path)) if self._exists(path) else None

    def remove(self, name: str) -> None:
        """Delete a folder below `_rowpost`, if it exists."""
        path = f"{self._root}/{METADATA_FOLDER}/{name}"
        if self._exists(path):
            self.files.delete_dir(path)

    def _texts(self, name: str) -> list[str]:
        folder = f"{self._root}/{METADATA_FOLDER}/{name}"
        infos = sorted((info for info in self._list(folder) if info.path.endswith(".json")), key=lambda info: info.path)
        return [self._text(info.path) for info in infos]

    def _text(self, path: str) -> str:
        with self.files.open_input_stream(path) as file:
            return file.read().decode()

    def _unfinished_new(self) -> list[str]:
        new = f"{self._root}/{METADATA_FOLDER}/new"
        return sorted({info.path[len(new) + 1 :].partition("/")[0] for info in self._list(new)} - {""})

    def _list(self, folder: str, *, recursive: bool = True) -> Sequence[fs.FileInfo]:
        return self.files.get_file_info(fs.FileSelector(folder, recursive=recursive, allow_not_found=True))

    def _exists(self, path: str) -> bool:
        return self.files.get_file_info(path).type != fs.FileType.NotFound

    def _batch_files(self) -> Iterator[tuple[tuple[str, str, str], fs.FileInfo]]:
        for queue in self._list(self._root, recursive=False):
            if queue.base_name.startswith("queue="):
                for info in self._list(queue.path):
                    if info.is_file and info.base_name.endswith(".parquet") and not info.base_name.startswith((".", "_")):
                        names = _names(info.path[len(self._root) + 1 :].split("/")[:-1])
                        if names is not None:
                            yield names, info


def _names(parts: list[str]) -> tuple[str, str, str] | None:
    pairs = [part.partition("=") for part in parts]
    if [name for name, _, _ in pairs] != list(_PARTS):
        return None
    queue, day, batch = (unquote(value) for _, _, value in pairs)
    return queue, day, batch


def _filesystem(path: str) -> tuple[fs.FileSystem, str]:
    if "://" not in path:
        from pathlib import Path

        return fs.LocalFileSystem(), str(Path(path).resolve())
    scheme, _, rest = path.partition("://")
    return fs.FileSystem.from_uri({"s3a": "s3", "s3n": "s3"}.get(scheme, scheme) + "://" + rest)
