"""An archive's folder: `queue=/day=/batch=`, and beside them `_rowpost`, where changes to it are noted down.

A change replaces batches of one queue and day by one new batch, or by none. What it will do is written down before it
begins (an intent), so that a change that was interrupted is finished by whoever comes next, and a reader of the journal
knows where batches went.
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

__all__ = ["OWN", "ArchiveFolder", "Batch", "Change"]

OWN = "_rowpost"
_NEVER = datetime.min.replace(tzinfo=UTC)
_STAGING = (".spark-staging-", "_temporary")
_PARTS = ("queue", "day", "batch")


@dataclass(frozen=True)
class Batch:
    """One folder `queue=/day=/batch=`. `written` is the time of its youngest file."""

    queue: str
    day: str
    name: str
    path: str
    files: tuple[str, ...] = ()
    bytes: int = 0
    written: datetime = _NEVER

    @property
    def number(self) -> tuple[str, int] | None:
        """Query and number of a batch that a stream wrote; None for one that a change made.

        >>> Batch("audit", "2026-11-20", "1f0c2a9e-12", "").number
        ('1f0c2a9e', 12)
        """
        key, _, number = self.name.rpartition("-")
        return (key, int(number)) if number.isdigit() and not key.startswith("changed") else None


@dataclass(frozen=True)
class Change:
    """What is done to the batches of one queue and day: files below `new` move into `place`, files in `old` go.

    Paths count from the archive's folder. `batches` are those that were there before.
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
    """An archive wherever pyarrow can reach it: a path, or a URI such as s3://… ."""

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/")
        self.files, self._root = _filesystem(self.path)

    @cached_property
    def is_delta(self) -> bool:
        """Whether this is a Delta table."""
        return self._exists(f"{self._root}/_delta_log")

    def must_exist(self) -> None:
        """Raises ArchiveNotFound where there is no archive."""
        if not self._exists(self._root):
            raise ArchiveNotFound(f"There is no archive in {self.path}: `rowpost spark archive QUEUE {self.path}` makes one.")
        if not self.is_delta and not any(True for _ in self._batch_files()):
            raise ArchiveNotFound(f"The folder {self.path} holds no archived message: no queue=…/day=…/batch=… with a file in it.")

    def batches(self) -> list[Batch]:
        """All of them, by queue, day and name."""
        found: dict[tuple[str, ...], list[fs.FileInfo]] = {}
        for names, info in self._batch_files():
            found.setdefault(names, []).append(info)
        return [
            Batch(
                *names,
                path=infos[0].path.rpartition("/")[0],
                files=tuple(info.path for info in infos),
                bytes=sum(info.size for info in infos),
                written=max(info.mtime for info in infos),
            )
            for names, infos in sorted(found.items())
        ]

    def data_files(self) -> list[str]:
        """Every file of every batch."""
        return [info.path for _, info in self._batch_files()]

    def leftovers(self) -> list[str]:
        """Folders that a killed writer left; no reader looks into them."""
        found = set()
        for info in self._list(self._root):
            head = info.path[len(self._root) + 1 :].partition("/")[0]
            if head.startswith(_STAGING):
                found.add(head)
        return sorted(found) + [f"{OWN}/new/{name}" for name in self._unfinished_new()]

    def sweep(self) -> list[str]:
        """Removes the leftovers; call it only while nobody writes."""
        found = self.leftovers()
        for name in found:
            self.files.delete_dir(f"{self._root}/{name}")
        return found

    # ---------------------------------------------------------------------------------------------- changes
    def new_place(self, name: str) -> str:
        """Where a change writes its new files, from the archive's folder."""
        return f"{OWN}/new/{name}"

    def rows(self, files: Iterable[str]) -> int:
        """How many rows files have, as they say at their end. Raises SparkFailed for one that does not."""
        counted = 0
        for path in files:
            found = self.rows_of(path)
            if found is None:
                raise SparkFailed(f"{path} cannot be read: it was not written to its end. `rowpost spark verify` names all such files.")
            counted += found
        return counted

    def rows_of(self, path: str) -> int | None:
        """The rows of one file; None for one that was not written to its end."""
        try:
            with self.files.open_input_file(path) as file:
                return parquet.read_metadata(file).num_rows
        except (ArrowInvalid, OSError):
            return None

    def written(self, place: str) -> list[str]:
        """The files that a change has written so far."""
        return [info.path for info in self._list(f"{self._root}/{place}") if info.base_name.endswith(".parquet")]

    def must_be_parquet(self, what: str) -> None:
        """Raises SparkFailed for a Delta table, which has its own tools."""
        if self.is_delta:
            raise SparkFailed(f"{self.path} is a Delta table: {what} it with Delta's own tools, which know its log.")

    def change(self, change: Change) -> None:
        """Writes the intent, then does it. Raises OSError."""
        self.write(f"intents/{change.name}.json", change.__dict__)
        self._finish(change)

    def recover(self) -> int:
        """Finishes changes that were interrupted; returns how many."""
        intents = [json.loads(text) for text in self._texts("intents")]
        for intent in intents:
            self._finish(Change(**intent))
        return len(intents)

    def unfinished(self) -> list[str]:
        """Names of changes that were interrupted."""
        return [json.loads(text)["name"] for text in self._texts("intents")]

    def journal(self) -> list[dict]:
        """Changes that were made, the oldest first."""
        return [json.loads(text) for text in self._texts("journal")]

    def _finish(self, change: Change) -> None:
        """Each step may have been done before: by a process that was killed after it."""
        source, target = f"{self._root}/{change.new}", f"{self._root}/{change.place}"
        for info in self._list(source):
            if info.is_file and info.base_name.endswith(".parquet"):
                place = f"{target}/{info.path[len(source) + 1 :]}"
                self.files.create_dir(place.rpartition("/")[0], recursive=True)
                self.files.move(info.path, place)
        if self._exists(source):
            self.files.delete_dir(source)
        for old in change.old:
            if self._exists(f"{self._root}/{old}"):
                self.files.delete_file(f"{self._root}/{old}")
        for folder in {f"{self._root}/{old}".rpartition("/")[0] for old in change.old}:
            if self._exists(folder) and not any(info.base_name.endswith(".parquet") for info in self._list(folder)):
                self.files.delete_dir(folder)
        self.write(f"journal/{change.name}.json", change.__dict__)
        self.files.delete_file(f"{self._root}/{OWN}/intents/{change.name}.json")

    def relative(self, path: str) -> str:
        """A path of the archive, from the archive's folder."""
        return path[len(self._root) + 1 :]

    # ---------------------------------------------------------------------------------------------- own files
    def write(self, name: str, document: dict) -> None:
        """A JSON file below _rowpost: there whole, or not at all."""
        path = f"{self._root}/{OWN}/{name}"
        self.files.create_dir(path.rpartition("/")[0], recursive=True)
        with self.files.open_output_stream(f"{path}.tmp") as out:
            out.write(json.dumps(document, default=str).encode())
        self.files.move(f"{path}.tmp", path)

    def read(self, name: str) -> dict | None:
        """Such a file; None where there is none."""
        path = f"{self._root}/{OWN}/{name}"
        return json.loads(self._text(path)) if self._exists(path) else None

    def remove(self, name: str) -> None:
        """A folder below _rowpost."""
        if self._exists(f"{self._root}/{OWN}/{name}"):
            self.files.delete_dir(f"{self._root}/{OWN}/{name}")

    def _texts(self, name: str) -> list[str]:
        folder = f"{self._root}/{OWN}/{name}"
        infos = sorted((info for info in self._list(folder) if info.path.endswith(".json")), key=lambda info: info.path)
        return [self._text(info.path) for info in infos]

    def _text(self, path: str) -> str:
        with self.files.open_input_stream(path) as file:
            return file.read().decode()

    def _unfinished_new(self) -> list[str]:
        new = f"{self._root}/{OWN}/new"
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
