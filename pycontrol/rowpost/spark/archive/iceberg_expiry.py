"""Expire snapshots of an Iceberg table, and delete the files that only they name. pyiceberg's own expiry deletes no file.

A snapshot expires a day after another one has replaced it, so that readers can finish. Its data files are deleted before it is
removed from the metadata: if the job is killed between the two, the next one finds the snapshot and goes on. Its manifests and its
manifest list are deleted afterwards. Data files that no snapshot names are kept, because another process may be about to commit them.
Manifests and metadata that nothing names are deleted when they are two days old: a killed or refused commit has left them.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotsUpdate

from rowpost.spark.archive.iceberg_files import relative
from rowpost.spark.archive.table import KEPT_HOURS

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from rowpost.spark.archive.folder import ArchiveFolder
    from rowpost.spark.archive.iceberg_files import Manifests

__all__ = ["Expiry", "delete", "orphans", "plan"]

_ORPHANS = (".avro", ".metadata.json")


@dataclass(frozen=True)
class Expiry:
    """Snapshots to expire, and the locations of the files that only they name."""

    snapshots: tuple[int, ...]
    data: frozenset[str]
    metadata: frozenset[str]

    def commit(self, table: Table) -> None:
        """Remove the snapshots. Raises CommitFailedException if another process has committed since `plan`."""
        current = AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=table.metadata.current_snapshot_id)  # type: ignore[call-arg]  # its annotation has the alias
        expired = RemoveSnapshotsUpdate(snapshot_ids=list(self.snapshots))  # type: ignore[call-arg]
        table.catalog.commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid), current), (expired,))


def plan(table: Table, manifests: Manifests, *, at_once: bool, now: datetime | None = None) -> Expiry:
    """Choose the snapshots that were replaced a day before `now`, or all that were replaced. Heads of branches and tags stay."""
    metadata = table.metadata
    limit = ((now or datetime.now(UTC)) - timedelta(hours=KEPT_HOURS)).timestamp() * 1000
    line = list(ancestors_of(metadata.snapshot_by_id(metadata.current_snapshot_id), metadata)) if metadata.current_snapshot_id else []
    replaced = {older.snapshot_id: newer.timestamp_ms for newer, older in pairwise(line)}
    heads = {ref.snapshot_id for ref in metadata.refs.values()} | {each.snapshot_id for each in line[:1]}
    gone = [
        each for each in metadata.snapshots
        if each.snapshot_id not in heads and (at_once or replaced.get(each.snapshot_id, each.timestamp_ms) < limit)
    ]  # fmt: skip
    return Expiry(tuple(each.snapshot_id for each in gone), *_only_in(table, manifests, gone, line))


def _only_in(table: Table, manifests: Manifests, gone: list[Snapshot], line: list[Snapshot]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the data files, and the manifests, their lists and statistics, that only expired snapshots name."""
    kept_data, kept_metadata = _named(table, manifests, _roots(table.metadata, gone, line))
    data, metadata = set(), {each.manifest_list for each in gone}
    for snapshot in gone:
        with suppress(FileNotFoundError):  # another program has deleted it
            for manifest in snapshot.manifests(table.io):
                if manifest.manifest_path not in kept_metadata | metadata:
                    metadata.add(manifest.manifest_path)
                    data |= {entry.data_file.file_path for entry in manifests.entries(manifest, table.io)}
    ids = {each.snapshot_id for each in gone}
    statistics = [*table.metadata.statistics, *table.metadata.partition_statistics]
    metadata |= {each.statistics_path for each in statistics if each.snapshot_id in ids}
    return frozenset(data - kept_data), frozenset(metadata)


def _roots(metadata: TableMetadata, gone: list[Snapshot], line: list[Snapshot]) -> list[Snapshot]:
    """Return the snapshots that name whatever stays of the expired ones: what is between the oldest that stays and the newest names nothing older."""
    ids, in_line = {each.snapshot_id for each in gone}, {each.snapshot_id for each in line}
    kept = [each for each in line if each.snapshot_id not in ids]
    return [*kept[:1], *kept[-1:], *(each for each in metadata.snapshots if each.snapshot_id not in ids | in_line)]


def _named(table: Table, manifests: Manifests, snapshots: Iterable[Snapshot]) -> tuple[set[str], set[str]]:
    """Return the data files of snapshots, and their manifests and lists."""
    data, metadata = set(), set()
    for snapshot in snapshots:
        metadata.add(snapshot.manifest_list)
        with suppress(FileNotFoundError):  # another program has deleted it
            metadata |= {manifest.manifest_path for manifest in snapshot.manifests(table.io)}
            data |= {entry.data_file.file_path for entry in manifests.live(snapshot, table.io)}
    return data, metadata


def orphans(table: Table, manifests: Manifests, folder: ArchiveFolder, now: datetime | None = None) -> list[str]:
    """Return the manifests and metadata, relative to the table's folder, that are two days old and that nothing names."""
    metadata, root = table.metadata, folder.path
    line = list(ancestors_of(metadata.snapshot_by_id(metadata.current_snapshot_id), metadata)) if metadata.current_snapshot_id else []
    # a snapshot between the oldest and the newest has only manifests that one of them has, or that were written for it, a day ago at most
    _, named = _named(table, manifests, _roots(metadata, [], line))
    named |= {each.manifest_list for each in metadata.snapshots} | {table.metadata_location, *(each.metadata_file for each in metadata.metadata_log)}
    known = {relative(root, location) for location in named}
    limit = (now or datetime.now(UTC)) - 2 * timedelta(hours=KEPT_HOURS)
    return [path for path, info in folder.contents("metadata") if path.endswith(_ORPHANS) and path not in known and info.mtime < limit]


def delete(table: Table, locations: Iterable[str]) -> None:
    """Delete files, if they exist."""
    for location in locations:
        with suppress(FileNotFoundError):
            table.io.delete(location)
