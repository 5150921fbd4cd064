"""Settings of one environment: frozen values, read once from a YAML file.

The file names what belongs to the environment (engine, database, queues, workers) and holds no secrets: `${VARIABLE}`
inside `url`, and only there, is replaced from the process environment. Everything that can be wrong in the file is a
SettingsError which names the file, the key and what to write instead.

    settings = load_settings("production")        # deploy/environments/production.yml
    settings = load_settings(None)                # $ROWPOST_ENV, else local: the embedded PostgreSQL

Two variables of the process environment matter beyond those in `url`: ROWPOST_ENV, the environment to take when none
is named, and ROWPOST_DATA, the folder of the embedded server's data.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import platformdirs

from rowpost import compat as generations
from rowpost.address import DEFAULT_SCHEMA, Address, parse_address
from rowpost.batch_size import ADAPTIVE, OFF, batch_size
from rowpost.compat import compat_of
from rowpost.environment_file import Section, expand_secrets, find_environment, read_environment
from rowpost.errors import InvalidQueueName, SettingsError
from rowpost.other_databases import ODBC_SERVER, OutboxSettings, read_outboxes, read_participants
from rowpost.saga_settings import SagaSettings, read_sagas

__all__ = [
    "OutboxSettings",
    "QueueSettings",
    "SagaSettings",
    "Settings",
    "SupervisorSettings",
    "WorkerSettings",
    "default_data_folder",
    "load_settings",
    "with_partitions",
]

ENGINES = ("embedded", "postgresql", "sqlserver")
STRATEGIES = ("adaptive", "fixed", "peek")
DEFAULT_LIMIT = 4
MINIMUM_PEEK_DELAY = 0.1
MINIMUM_PARTITIONS = 2
HANDLER = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def default_data_folder() -> Path:
    """Folder of the embedded server: ROWPOST_DATA, else the user's data folder."""
    named = os.environ.get("ROWPOST_DATA")
    return Path(named).expanduser() if named else Path(platformdirs.user_data_dir("rowpost", appauthor=False))


@dataclass(frozen=True)
class WorkerSettings:
    """Who handles the messages of a queue, and how many at a time.

    `limit` is the greatest number of worker processes, `peek_delay` the seconds between two looks at an empty queue,
    `attempts` the number of tries before a message moves to the error queue. All times are seconds.

    `time_limit`: a handler that runs longer is killed with its process, a failed attempt; 0 for no limit.
    `throttle_after` so many failures in a row (0: never) one worker is left, which waits `throttle_wait` between two
    attempts.
    `batch`: how many messages share a transaction: "adaptive" (up to 500 while a backlog waits, and their handlers take
    `batch_time` together), "off" (one) or a number of them. `purge_expired_on_startup`, `purge_expired_every` (0: never): remove expired messages unasked.
    """

    handler: str
    limit: int = DEFAULT_LIMIT
    strategy: str = "peek"
    secondary: bool = False
    peek_delay: float = 1.0
    attempts: int = 6
    purge_on_startup: bool = False
    time_limit: float = 0.0
    throttle_after: int = 0
    throttle_wait: float = 1.0
    purge_expired_on_startup: bool = False
    purge_expired_every: float = 0.0
    #: one worker at a time, of all processes on all machines: messages are handled in their order
    exclusive: bool = False
    batch: str | int = ADAPTIVE
    batch_time: float = 0.05


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


@dataclass(frozen=True)
class SupervisorSettings:
    """Times are seconds: until a stopping worker is killed, until the circuit breaker trips, that a spare idles, that a
    delayed message may be late.

    `upkeep_every`: between two looks after each queue's table, by one elected process; 0 leaves that to others.
    `wake_up`: let senders wake the supervisor where the engine can (PostgreSQL); else it looks once a peek delay.
    """

    error_queue: str = "error"
    stop_timeout: float = 30.0
    breaker_seconds: float = 30.0
    idle_timeout: float = 2.0
    delayed_lateness: float = 1.0
    upkeep_every: float = 300.0
    wake_up: bool = True


@dataclass(frozen=True)
class Settings:
    """One environment. `engine` is postgresql or sqlserver; `url` None means the embedded PostgreSQL in `data_folder`.

    `url` is a secret: it is left out of repr and str; `target` says where it leads without it.
    `default_schema` is where queues lie that name none; queue names here are canonical already, so that `Sales` in
    an environment whose default schema is `nsb` reads `Sales@[nsb]`.
    `folder` is where the file was found, None for settings that no file described.
    `participants` are (name, url) of databases that may take part in transactions (transactions.py); secrets too.
    """

    environment: str = "local"
    engine: str = "postgresql"
    url: str | None = field(default=None, repr=False)
    data_folder: Path = field(default_factory=default_data_folder)
    default_schema: str = "public"
    compat: str = generations.DEFAULT
    queues: tuple[QueueSettings, ...] = ()
    sagas: tuple[SagaSettings, ...] = ()
    supervisor: SupervisorSettings = SupervisorSettings()
    folder: Path | None = None
    participants: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    outboxes: tuple[OutboxSettings, ...] = ()

    @property
    def embedded(self) -> bool:
        """Whether the database is the private PostgreSQL that rowpost starts itself."""
        return self.url is None

    @property
    def target(self) -> str:
        """Server and database in words, without user, password or any other part of the url.

        >>> Settings(url="postgresql://app:secret@db01:5432/shop").target
        'postgresql db01:5432/shop'
        """
        if self.url is None:
            return f"embedded PostgreSQL in {self.data_folder}"
        if self.engine == "postgresql":
            return f"postgresql {_postgresql_target(self.url)}"
        parts = dict(re.findall(r"(?i)(?:^|;)\s*(server|database)\s*=\s*([^;{}]*)", self.url))
        named = {key.lower(): value.strip() for key, value in parts.items()}
        return f"sqlserver {named.get('server', '?')}/{named.get('database', '')}".rstrip("/")

    def queue(self, name: str) -> QueueSettings | None:
        """The declared queue of that name, None when there is none."""
        return next((queue for queue in self.queues if queue.name == name), None)


def load_settings(environment: str | Path | None = None) -> Settings:
    """Read an environment by name or by the path of its file; None takes ROWPOST_ENV, else local.

    Raises SettingsError.
    """
    path = find_environment(environment or os.environ.get("ROWPOST_ENV") or "local")
    top = Section(path, "", read_environment(path))
    engine = top.choice("engine", ENGINES, default="embedded")
    dialect = "postgresql" if engine == "embedded" else engine
    schema = top.text("default_schema", default=DEFAULT_SCHEMA[dialect])
    compat = top.choice("compat", generations.VERSIONS, default=generations.DEFAULT)
    clustered = compat_of(compat).clustered if top.text("compat", default=None) else True
    settings = Settings(
        environment=top.text("environment", default=path.stem),
        engine=dialect,
        url=_read_url(top, engine),
        data_folder=_read_data_folder(top),
        default_schema=schema,
        compat=compat,
        queues=_read_queues(top, dialect, schema, compat, clustered),
        sagas=read_sagas(top, lambda section: _canonical(section, section.name, dialect, schema), dialect),
        supervisor=_read_supervisor(top, dialect, schema),
        folder=path.parent,
        participants=read_participants(top, dialect),
        outboxes=read_outboxes(top),
    )
    top.finish()
    return settings


def _read_url(top: Section, engine: str) -> str | None:
    raw = top.text("url", default=None)
    if engine == "embedded":
        if raw is not None:
            raise top.error("url", "the embedded engine has no url: remove it, or write engine: postgresql")
        return None
    if raw is None:
        example = (
            '"postgresql://app:${APP_PASSWORD}@db01/shop"'
            if engine == "postgresql"
            else '"Server=sql01;Database=shop;UID=app;PWD=${APP_PASSWORD}"'
        )
        raise top.error("url", f"missing: engine {engine} needs one, such as {example}")
    url = expand_secrets(top, "url", raw, engine)
    if engine == "postgresql" and not url.startswith(("postgresql://", "postgres://")):
        raise top.error("url", "must be a PostgreSQL url that starts with postgresql://")
    if engine == "sqlserver" and not ODBC_SERVER.search(url):
        raise top.error("url", "must be an ODBC connection string such as Server=sql01;Database=shop;...")
    return url


def _read_data_folder(top: Section) -> Path:
    raw = top.text("data_folder", default=None)
    if raw is None or os.environ.get("ROWPOST_DATA"):
        return default_data_folder()
    return (top.file.parent / Path(raw).expanduser()).resolve()


def _read_queues(
    top: Section, dialect: str, schema: str, compat: str, clustered: bool
) -> tuple[QueueSettings, ...]:
    found: dict[str, str] = {}
    queues: list[QueueSettings] = []
    for group in ("queues", "external"):
        for section in top.sections(group):
            name = _canonical(section, section.name, dialect, schema)
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
    worker = queue.worker and replace(queue.worker, limit=1, exclusive=True)
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
        worker=None if worker is None else _read_worker(worker, compat),
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


def _read_worker(section: Section, compat: str) -> WorkerSettings:
    handler = section.text("handler")
    if not HANDLER.fullmatch(handler):
        raise section.error("handler", f"{handler!r} is not of the form module:function, such as shop.handlers:order")
    secondary = section.flag("secondary", default=False)
    worker = WorkerSettings(
        handler=handler,
        limit=section.whole("limit", default=1 if secondary else DEFAULT_LIMIT, at_least=1),
        strategy=section.choice("strategy", STRATEGIES, default=compat_of(compat).strategy),
        secondary=secondary,
        peek_delay=section.seconds("peek_delay", default=1.0, at_least=MINIMUM_PEEK_DELAY),
        attempts=section.whole("attempts", default=6, at_least=1),
        purge_on_startup=section.flag("purge_on_startup", default=False),
        time_limit=section.seconds("time_limit", default=0.0, at_least=0.0),
        throttle_after=section.whole("throttle_after", default=0, at_least=0),
        throttle_wait=section.seconds("throttle_wait", default=1.0, at_least=0.0),
        purge_expired_on_startup=section.flag("purge_expired_on_startup", default=False),
        purge_expired_every=section.seconds("purge_expired_every", default=0.0, at_least=0.0),
        exclusive=section.flag("exclusive", default=False),
        batch=_read_batch(section),
        batch_time=section.seconds("batch_time", default=0.05, at_least=0.001),
    )
    if worker.exclusive and worker.limit > 1:
        worker = replace(worker, limit=1)
    section.finish()
    return worker


def _read_batch(section: Section) -> str | int:
    value = section.value("batch", default=ADAPTIVE)
    setting = OFF if value is False else value  # YAML reads off as false
    try:
        batch_size(setting, budget=1.0)
    except SettingsError as error:
        raise section.error("batch", str(error)) from error
    return setting


def _read_supervisor(top: Section, dialect: str, schema: str) -> SupervisorSettings:
    section = top.section("supervisor")
    if section is None:
        return SupervisorSettings()
    error_queue = section.text("error_queue", default="error")
    supervisor = SupervisorSettings(
        error_queue=_canonical(section, error_queue, dialect, schema, key="error_queue"),
        stop_timeout=section.seconds("stop_timeout", default=30.0, at_least=0.0),
        breaker_seconds=section.seconds("breaker_seconds", default=30.0, at_least=0.0),
        idle_timeout=section.seconds("idle_timeout", default=2.0, at_least=0.0),
        delayed_lateness=section.seconds("delayed_lateness", default=1.0, at_least=MINIMUM_PEEK_DELAY),
        upkeep_every=section.seconds("upkeep_every", default=300.0, at_least=0.0),
        wake_up=section.flag("wake_up", default=True),
    )
    section.finish()
    return supervisor


def _canonical(section: Section, text: str, dialect: str, schema: str, key: str = "") -> str:
    """The queue's name as the registry has it: with its schema, unless that is the engine's own default."""
    try:
        address = parse_address(text)
        address = Address(address.table, address.schema or schema, address.catalog).qualified(dialect)
    except InvalidQueueName as error:
        raise section.error(key, str(error)) from error
    return address.short(dialect).format()


def _postgresql_target(url: str) -> str:
    parts: Any = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{host or 'localhost'}{parts.path}".rstrip("/")
