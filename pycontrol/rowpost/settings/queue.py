"""The queues of an environment's file, with their partitions, and the queues elsewhere that it only sends to."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rowpost.errors import InvalidQueueName
from rowpost.settings.worker import WorkerSettings, read_worker
from rowpost.settings.yaml_file import Section
from rowpost.wire.address import Address, parse_address

__all__ = ["QueueSettings", "canonical_name", "read_queues", "with_partitions"]

MINIMUM_PARTITIONS = 2


@dataclass(frozen=True)
class QueueSettings:
    """One declared queue. `kind` is own (we make the table), adopted (it was there) or external (we only send).

    `partitions` are names of queues among which its messages are split (partitions.py), by the value that `partition_by`
    leads to: a header's name, or `module:function`.
    """

    name: str
    kind: str = "own"
    body_string: bool = False
    clustered: bool = True
    delayed: bool = True
    worker: WorkerSettings | None = None
    partitions: tuple[str, ...] = ()
    partition_by: str = ""


def read_queues(
    top: Section, dialect: str, schema: str, compat: str, clustered: bool
) -> tuple[QueueSettings, ...]:
    """The sections `queues` and `external`, partitions among them. Raises SettingsError."""
    found: dict[str, str] = {}
    queues: list[QueueSettings] = []
    for group in ("queues", "external"):
        for section in top.sections(group):
            name = canonical_name(section, section.name, dialect, schema)
            # SQL Server's default collations know no case; PostgreSQL's quoted names do.
            same = name.casefold() if dialect == "sqlserver" else name
            if same in found:
                raise section.error("", f"is the same queue as {found[same]}: declare it once")
            found[same] = section.path
            external = group == "external"
            queue = _read_external(section, name) if external else _read_queue(section, name, compat, clustered)
            queues += with_partitions(queue)
    names = [queue.name for queue in queues]
    for twice in {name for name in names if names.count(name) > 1}:
        raise top.error("queues", f"{twice} is the name of a partition: name the queue otherwise")
    return tuple(queues)


def with_partitions(queue: QueueSettings) -> list[QueueSettings]:
    """A queue and its partitions. Its worker is theirs: one for each, and no other beside it."""
    if not queue.partitions:
        return [queue]
    worker = queue.worker and replace(queue.worker, exclusive=True)
    plain = replace(queue, kind="own", partitions=(), partition_by="", worker=worker)
    return [replace(queue, worker=None), *(replace(plain, name=name) for name in queue.partitions)]


def _read_external(section: Section, name: str) -> QueueSettings:
    section.finish(hint="an external queue has no settings: we only send to it")
    return QueueSettings(name, "external")


def _read_queue(section: Section, name: str, compat: str, clustered: bool) -> QueueSettings:
    if parse_address(name).catalog is not None:
        raise section.error("", "lies in another database: declare it below external, we can only send to it")
    worker = section.section("worker")
    partitions, partition_by = _read_partitions(section, name)
    queue = QueueSettings(
        name=name,
        kind=section.choice("kind", ("own", "adopted"), default="own"),
        body_string=section.flag("body_string", default=False),
        clustered=section.flag("clustered", default=clustered),
        delayed=section.flag("delayed", default=True),
        worker=None if worker is None else read_worker(worker, compat),
        partitions=partitions,
        partition_by=partition_by,
    )
    section.finish()
    return queue


def _read_partitions(queue: Section, name: str) -> tuple[tuple[str, ...], str]:
    section = queue.section("partitions")
    if section is None:
        return (), ""
    count = section.whole("count", default=MINIMUM_PARTITIONS, at_least=MINIMUM_PARTITIONS)
    by = section.text("by")
    section.finish()
    address = parse_address(name)
    return tuple(Address(f"{address.table}.p{n}", address.schema).format() for n in range(1, count + 1)), by


def canonical_name(section: Section, text: str, dialect: str, schema: str, key: str = "") -> str:
    """The queue's name as the registry has it: with its schema, unless that is the engine's own default."""
    try:
        address = parse_address(text)
        address = Address(address.table, address.schema or schema, address.catalog).qualified(dialect)
    except InvalidQueueName as error:
        raise section.error(key, str(error)) from error
    return address.short(dialect).format()
