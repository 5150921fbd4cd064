"""Settings of queues, with their partitions, and of external queues, which endpoints only send to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal
from unicodedata import normalize

from msgspec import Meta

from rowpost.errors import InvalidQueueName
from rowpost.settings.descriptor import DESCRIBED, Descriptor
from rowpost.settings.worker import WorkerSettings, read_worker
from rowpost.settings.yaml_node import Node, decode
from rowpost.wire.address import Address, Naming, parse_address

__all__ = ["QueueKind", "QueueSettings", "canonical_name", "read_queues", "with_partitions"]

#: each partition has a table, procedures and a worker process of its own
LARGEST_PARTITION_COUNT = 1000
QueueKind = Literal["own", "adopted", "external"]


@dataclass(frozen=True)
class QueueSettings(Descriptor):
    """One declared queue, with what people should know about it.

    Attributes:
        name: the canonical name.
        kind: "own" (a deployment creates the table), "adopted" (the table exists) or "external" (another system owns
            it: endpoints only send to it, and operators read and retry its failed messages).
        body_string: whether the table has a readable column of the body.
        clustered: whether a new table's index on the row version is clustered (SQL Server).
        delayed: whether the queue has a table of delayed messages. In a file, the error queue and `audit` have none
            unless they say so.
        lease: whether the queue has a table of leases, for an endpoint with `receive="lease"`.
        worker: who handles the messages; None if no worker of this environment does.
        partitions: names of the queues among which the messages are split.
        partition_by: what selects the partition: a header's name, or a function as `module:function`.
    """

    name: str
    kind: QueueKind = "own"
    body_string: bool = False
    clustered: bool = True
    delayed: bool = True
    lease: bool = False
    worker: WorkerSettings | None = None
    partitions: tuple[str, ...] = ()
    partition_by: str = ""


@dataclass(frozen=True)
class _Partitions:
    by: str
    count: Annotated[int, Meta(ge=2, le=LARGEST_PARTITION_COUNT)] = 2


def read_queues(
    root: Node, dialect: str, schema: str, compat: str, clustered: bool, error_queue: str = "error"
) -> tuple[QueueSettings, ...]:
    """Read the sections `queues` and `external`, with the partitions of queues. Raises SettingsError."""
    copies = {
        error_queue,
        canonical_name(root, "error", dialect, schema),
        canonical_name(root, "audit", dialect, schema),
    }
    paths: dict[str, str] = {}
    queues: list[QueueSettings] = []
    for group in ("queues", "external"):
        for node in root.children(group):
            name = canonical_name(node, node.name, dialect, schema)
            # SQL Server's default collations ignore case. PostgreSQL's quoted names do not. Both tell a composed é from
            # a decomposed one.
            same = normalize("NFC", name)
            key = same.casefold() if dialect == "sqlserver" else same
            if key in paths:
                raise node.error("", f"is the same queue as {paths[key]}: declare it once")
            paths[key] = node.path
            external = group == "external"
            queue = (
                _read_external(node, name)
                if external
                else _read_queue(node, name, compat, {"clustered": clustered, "delayed": name not in copies})
            )
            queues += with_partitions(queue)
    names = [queue.name for queue in queues]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise root.error("queues", f"{twice} is the name of a partition: give the queue another name")
    return tuple(queues)


def with_partitions(queue: QueueSettings) -> list[QueueSettings]:
    """Return a queue and its partitions.

    Each partition gets the queue's worker, with one process; the queue gets none.
    """
    if not queue.partitions:
        return [queue]
    worker = queue.worker and replace(queue.worker, exclusive=True)
    plain = replace(queue, kind="own", partitions=(), partition_by="", worker=worker)
    return [replace(queue, worker=None), *(replace(plain, name=name) for name in queue.partitions)]


def _read_external(node: Node, name: str) -> QueueSettings:
    node.check_keys(
        DESCRIBED,
        hint=(
            "an external queue has a description, an owner and a runbook, and no settings: endpoints can only send to "
            "it"
        ),
    )
    return QueueSettings(name, "external", **vars(decode(node, Descriptor)))


def _read_queue(node: Node, name: str, compat: str, defaults: dict[str, bool]) -> QueueSettings:
    if parse_address(name).catalog is not None:
        raise node.error("", "lies in another database: declare it below external, rowpost can only send to it")
    if "publication" in node.values:
        raise node.error(
            "publication", "is gone, as streams with mode=log are: remove the line, and archive the audit queue instead"
        )
    worker = node.child("worker")
    partitions, partition_by = _read_partitions(node, name)
    given = {
        "name": name,
        "worker": None if worker is None else read_worker(worker, compat),
        "partitions": partitions,
        "partition_by": partition_by,
    }
    if worker is not None:
        defaults = {**defaults, "delayed": True}  # its handlers may be retried later
    queue = decode(node, QueueSettings, given=given, defaults=defaults)
    if queue.kind == "external":
        raise node.error("kind", "'external' is not one of own, adopted: declare the queue below external")
    return queue


def _read_partitions(queue: Node, name: str) -> tuple[tuple[str, ...], str]:
    node = queue.child("partitions")
    if node is None:
        return (), ""
    partitions = decode(node, _Partitions)
    address = parse_address(name)
    names = (Address(f"{address.table}.p{n}", address.schema).format() for n in range(1, partitions.count + 1))
    return tuple(names), partitions.by


def canonical_name(node: Node, text: str, dialect: str, schema: str, key: str = "") -> str:
    """Return the queue's name as in the registry: with its schema, unless that is the engine's own default.

    Args:
        node: the mapping that holds the name, for errors.
        text: the name as it is written in the file.
        dialect: postgresql or sqlserver.
        schema: the schema of names that have none.
        key: the key of the name; empty if the name is the mapping's own.

    Raises:
        SettingsError: the text is not a queue's name.
    """
    try:
        return Naming(dialect, schema).canonical(text)
    except InvalidQueueName as error:
        raise node.error(key, str(error)) from error
