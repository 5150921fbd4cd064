"""The files below an archive that are not its table: `_rowpost` with checkpoints, replays and receipts, and leftovers.

`ArchiveFolder` reads and writes them at a path or at a URI that pyarrow can reach.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from pyarrow import ArrowInvalid, NativeFile, Table, fs, parquet

from rowpost.archive.address import located, scheme_of

__all__ = ["LOG_FOLDER", "METADATA_FOLDER", "REPLAYS", "ArchiveFolder"]

METADATA_FOLDER = "_rowpost"
LOG_FOLDER = "_delta_log"
REPLAYS = f"{METADATA_FOLDER}/replays"


class ArchiveFolder:
    """The files below an archive. Paths are relative to its folder."""

    def __init__(self, path: str) -> None:
        self.path = located(path)
        self.files, self._root = fs.LocalFileSystem(), self.path
        if scheme := scheme_of(self.path):
            # the key is read as it is written, and never decoded
            store, _, key = self.path.removeprefix(f"{scheme}://").partition("/")
            scheme = {"s3a": "s3", "s3n": "s3"}.get(scheme, scheme)
            # with the option, a small file is one request instead of three
            option = "?allow_delayed_open=true" if scheme == "s3" else ""
            self.files, root = fs.FileSystem.from_uri(f"{scheme}://{store}{option}")
            self._root = f"{root.rstrip('/')}/{key}".rstrip("/") or "/"

    @cached_property
    def is_delta(self) -> bool:
        """Whether the folder holds a Delta table."""
        return self.exists(LOG_FOLDER)

    def root_exists(self) -> bool:
        """Whether the bucket or container of an object store exists."""
        return bool(self.files.get_file_info(self._root.partition("/")[0]).type != fs.FileType.NotFound)

    def exists(self, path: str = "") -> bool:
        return bool(self.files.get_file_info(self._at(path)).type != fs.FileType.NotFound)

    def contents(self, path: str = "", *, recursive: bool = True) -> Sequence[tuple[str, fs.FileInfo]]:
        """Return what is below a folder, with relative paths. Returns nothing for a folder that does not exist."""
        found = self.files.get_file_info(fs.FileSelector(self._at(path), recursive=recursive, allow_not_found=True))
        return sorted(((info.path[len(self._root) + 1 :], info) for info in found), key=lambda each: each[0])

    def may_be_replaced(self) -> bool:
        """Whether the folder is empty, or holds a result that Spark has written."""
        if self.files.get_file_info(self._root).is_file:
            return False
        names = [name for name, _ in self.contents(recursive=False)]
        return not names or "_SUCCESS" in names

    def data_files(self) -> list[tuple[str, fs.FileInfo]]:
        """Return all Parquet files below the folder that are not part of the table's log or of a replay, with staged
        ones.
        """
        hidden = (f"{LOG_FOLDER}/", f"{REPLAYS}/")
        return [
            (path, info)
            for path, info in self.contents()
            if info.is_file and path.endswith(".parquet") and not path.startswith(hidden)
        ]

    def replays(self) -> list[str]:
        """Return the folders that store messages of replays: one for each attempt to choose them."""
        found = {
            path.rpartition("/")[0] for path, _ in self.contents(REPLAYS) if path.endswith(("/rows", "/rows-kept"))
        }
        return sorted(found)

    def open(self, path: str) -> NativeFile:
        """Open a file for reading. Raises FileNotFoundError."""
        return self.files.open_input_file(self._at(path))

    def create_file(self, path: str) -> NativeFile:
        """Open a new file for writing, and create the folder that it is in. A store has no folders."""
        if not self._is_object_store:
            self._create_folder_of(path)
        return self.files.open_output_stream(self._at(path))

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return int(self.files.get_file_info(self._at(path)).size)

    def footer(self, path: str) -> parquet.FileMetaData | None:
        """Read the footer of a Parquet file. Returns None for a file that is missing or incomplete."""
        try:
            with self.open(path) as file:
                return parquet.read_metadata(file)
        except (ArrowInvalid, OSError):
            return None

    def move(self, source: str, target: str) -> None:
        self._create_folder_of(target)
        self.files.move(self._at(source), self._at(target))

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files and folders, if they exist."""
        for path in paths:
            kind = self.files.get_file_info(self._at(path)).type
            if kind == fs.FileType.Directory:
                self.files.delete_dir(self._at(path))
            elif kind != fs.FileType.NotFound:
                self.files.delete_file(self._at(path))

    # ---------------------------------------------------------------------------------------------- metadata
    def write(self, name: str, document: dict[str, Any]) -> None:
        """Write a JSON file below `_rowpost` atomically."""
        path = f"{METADATA_FOLDER}/{name}"
        if self._is_object_store:
            self._put(path, document)
        else:
            self._put(f"{path}.tmp", document)
            self.files.move(self._at(f"{path}.tmp"), self._at(path))

    def create(self, name: str, document: dict[str, Any]) -> bool:
        """Write a JSON file below `_rowpost` unless it exists.

        Atomic on a local disk; elsewhere two may succeed at once.
        """
        path = f"{METADATA_FOLDER}/{name}"
        if isinstance(self.files, fs.LocalFileSystem):
            self._create_folder_of(path)
            try:
                with Path(self._at(path)).open("xb") as out:
                    out.write(_json(document))
            except FileExistsError:
                return False
        elif self.exists(path):
            return False
        else:
            self._put(path, document)
        return True

    def _put(self, path: str, document: dict[str, Any]) -> None:
        with self.create_file(path) as out:
            out.write(_json(document))

    @property
    def _is_object_store(self) -> bool:
        """Whether a file appears at once and complete, and needs no folder."""
        return self.files.type_name in ("s3", "gcs", "abfs")

    def _create_folder_of(self, path: str) -> None:
        self.files.create_dir(self._at(path).rpartition("/")[0], recursive=True)

    def read(self, name: str) -> dict[str, Any] | None:
        """Read a JSON file below `_rowpost`. Returns None if it does not exist or is being written."""
        try:
            document: dict[str, Any] = json.loads(self.text(f"{METADATA_FOLDER}/{name}"))
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return document

    def text(self, path: str) -> str:
        """Read a text file. Raises FileNotFoundError."""
        with self.files.open_input_stream(self._at(path)) as file:
            return str(file.read(), "utf-8")

    def read_table(self, path: str, columns: Sequence[str]) -> Table:
        """Read columns of a Parquet file."""
        with self.open(path) as file:
            return parquet.read_table(file, columns=list(columns))

    def write_table(self, path: str, rows: Table) -> None:
        """Write a Parquet file of numbers, which are stored as differences."""
        with self.create_file(path) as out:
            encoding = dict.fromkeys(rows.column_names, "DELTA_BINARY_PACKED")
            parquet.write_table(rows, out, compression="zstd", use_dictionary=False, column_encoding=encoding)

    def age_s(self, name: str) -> float:
        """Return the seconds since a file below `_rowpost` was written, 0 if it does not exist."""
        written = self.files.get_file_info(self._at(f"{METADATA_FOLDER}/{name}")).mtime
        return 0.0 if written is None else (datetime.now(UTC) - written).total_seconds()

    def remove(self, name: str) -> None:
        """Delete a file or folder below `_rowpost`, if it exists."""
        self.delete([f"{METADATA_FOLDER}/{name}"])

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, default=str).encode()
