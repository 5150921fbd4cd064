"""Take an archive of an earlier version over into a Delta table. Its files stay where they are, and none is copied.

Earlier versions stored plain Parquet files in folders queue=…/day=…/batch=<query>-<number>, and had no log. The table's first
entries list these files, and the last batch of each query, so that a stream that goes on adds no batch twice. If the last
batch of a query is not in Spark's commit log, its files may be incomplete. They are deleted, because Spark repeats the batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from rowpost.errors import ArchiveNotFound, SparkFailed
from rowpost.spark.archive.delta import DeltaArchive
from rowpost.spark.archive.folder import LOG_FOLDER, METADATA_FOLDER, ArchiveFolder
from rowpost.spark.archive.parts import NewFile, statistics
from rowpost.spark.archive.schemas import ARCHIVE

__all__ = ["run"]

_KEY_LENGTH = 8  # of the query's id, in the names of folders
_OLD_LOG = f"{METADATA_FOLDER}/old_log"
_CHANGED = "changed"  # starts the names of batches that a change wrote
_THREADS = 8


@dataclass(frozen=True)
class _OldFile:
    path: str
    queue: str
    day: str
    batch: str
    bytes: int

    @property
    def number(self) -> tuple[str, int] | None:
        """The query and number of a batch that a stream wrote."""
        key, _, number = self.batch.rpartition("-")
        return (key, int(number)) if number.isdigit() and not key.startswith(_CHANGED) else None


def run(path: str, checkpoints: Sequence[str] = ()) -> dict[str, Any]:
    """Take an archive over, and return counts. If it was interrupted, run it again.

    Args:
        path: the archive.
        checkpoints: the checkpoints of its streams that are not in the archive.

    Raises:
        ArchiveNotFound: there is no archive in `path`.
        SparkFailed: it was taken over already, or a file is incomplete. Nothing was changed.
    """
    folder = ArchiveFolder(path)
    if folder.exists(_OLD_LOG) and not folder.is_delta:  # an earlier run was killed
        folder.move(_OLD_LOG, LOG_FOLDER)
        folder = ArchiveFolder(path)
    if folder.is_delta:
        return _renew(folder)
    _finish_changes(folder)
    files = _files(folder)
    if not files:
        raise ArchiveNotFound(f"There is no archive in {path}: it has no file in a folder queue=…/day=…/batch=…. Check the path.")
    newest = _newest(files, folder)
    committed = _committed(folder, checkpoints)
    open_batches = {(key, number) for key, number in newest.items() if number > committed.get(key, number)}
    kept = [file for file in files if file.number not in open_batches]
    new = _described(folder, kept)
    known = {key: min(number, committed.get(key, number)) for key, number in newest.items()}
    DeltaArchive.adopt(path, ARCHIVE, new, {key: number for key, number in known.items() if number >= 0})
    folder.delete(file.path for file in files if file.number in open_batches)
    for name in ("intents", "journal", "new"):
        folder.remove(name)
    return {"files": len(new), "messages": sum(file.rows for file in new), "streams": len(known), "without_checkpoint": sorted(known.keys() - committed.keys()),
            "repeated_batches": len(open_batches)}  # fmt: skip


def _renew(folder: ArchiveFolder) -> dict[str, Any]:
    """Replace the log of a table that has statistics of all columns. Its files and its queries' batches stay."""
    table = DeltaArchive.open(folder.path)
    if table.has_plain_log:
        raise SparkFailed(f"The archive in {folder.path} is taken over already. There is nothing to do.")
    table.check_writable()
    new = _described(folder, [_OldFile(file.path, file.queue, file.day, "", file.bytes) for file in table.files()])
    batches = _transactions(folder)
    folder.move(LOG_FOLDER, _OLD_LOG)
    DeltaArchive.adopt(folder.path, table.schema, new, batches)
    folder.delete([_OLD_LOG])
    return {"files": len(new), "messages": sum(file.rows for file in new), "streams": len(batches), "without_checkpoint": [], "repeated_batches": 0}


def _transactions(folder: ArchiveFolder) -> dict[str, int]:
    """Return the last batch of each query from the entries and checkpoints of a log."""
    found: list[Mapping[str, Any]] = []
    for path, _ in folder.contents(LOG_FOLDER):
        if path.endswith(".json"):
            found += [entry["txn"] for entry in map(json.loads, folder.text(path).splitlines()) if "txn" in entry]
        elif path.endswith(".checkpoint.parquet"):
            found += [row["txn"] for row in folder.table(path, ["txn"]) if row["txn"]]
    batches: dict[str, int] = {}
    for each in found:
        batches[each["appId"]] = max(each["version"], batches.get(each["appId"], -1))
    return batches


def _files(folder: ArchiveFolder) -> list[_OldFile]:
    found = []
    for path, info in folder.data_files():
        pairs = [part.partition("=") for part in path.split("/")[:-1]]
        if [name for name, _, _ in pairs] == ["queue", "day", "batch"] and not path.rpartition("/")[2].startswith((".", "_")):
            queue, day, batch = (unquote(value) for _, _, value in pairs)
            found.append(_OldFile(path, queue, day, batch, info.size))
    return found


def _newest(files: Iterable[_OldFile], folder: ArchiveFolder) -> dict[str, int]:
    """Return the number of the last batch of each query, with the batches that a change has replaced."""
    journal = [folder.read_json(path) or {} for path, _ in folder.contents(f"{METADATA_FOLDER}/journal")]
    replaced = [_OldFile("", "", "", name, 0) for change in journal for name in change.get("batches", ())]
    newest: dict[str, int] = {}
    for key, number in (file.number for file in [*files, *replaced] if file.number is not None):
        newest[key] = max(number, newest.get(key, number))
    return newest


def _committed(folder: ArchiveFolder, checkpoints: Sequence[str]) -> dict[str, int]:
    """Return the last batch in Spark's commit log by the start of the query's id, -1 for none."""
    own = [f"{folder.path}/{path}" for path, info in folder.contents(f"{METADATA_FOLDER}/checkpoints", recursive=False) if not info.is_file]
    found = {}
    for place in [*own, *checkpoints]:
        checkpoint = ArchiveFolder(place)
        metadata = checkpoint.read_json("metadata")
        if metadata is None:
            raise SparkFailed(f"{place} is not a checkpoint of Spark: it has no file metadata. Nothing was changed. Check the path.")
        numbers = [int(name.rpartition("/")[2]) for name, _ in checkpoint.contents("commits") if name.rpartition("/")[2].isdecimal()]
        found[metadata["id"][:_KEY_LENGTH]] = max(numbers, default=-1)
    return found


def _described(folder: ArchiveFolder, files: Sequence[_OldFile]) -> list[NewFile]:
    """Read the footers of files. Raises SparkFailed for an incomplete file."""
    with ThreadPoolExecutor(_THREADS) as threads:
        footers = list(threads.map(lambda file: folder.footer(file.path), files))
    new = []
    for file, footer in zip(files, footers, strict=True):
        if footer is None:
            raise SparkFailed(f"{file.path} cannot be read: the file is incomplete. Nothing was changed. Restore it from a backup or delete it.")
        new.append(NewFile(file.path, file.queue, file.day, file.bytes, footer.num_rows, statistics(footer)))
    return new


def _finish_changes(folder: ArchiveFolder) -> None:
    """Finish the changes of `compact` and `retain` that were interrupted: move their new files in, and delete the replaced ones."""
    for name, _ in folder.contents(f"{METADATA_FOLDER}/intents"):
        change: Mapping[str, Any] = folder.read_json(name) or {}
        for path, info in folder.contents(change["new"]):
            if info.is_file and path.endswith(".parquet"):
                folder.move(path, f"{change['place']}{path.removeprefix(change['new'])}")
        folder.delete([*change["old"], change["new"]])
        folder.delete([name])
