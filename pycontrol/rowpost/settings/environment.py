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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import platformdirs

from rowpost.settings import compat as generations
from rowpost.settings.compat import compat_of
from rowpost.settings.databases import ODBC_SERVER, OutboxSettings, read_outboxes, read_participants
from rowpost.settings.queue import QueueSettings, canonical_name, read_queues, with_partitions
from rowpost.settings.saga import SagaSettings, read_sagas
from rowpost.settings.worker import MINIMUM_PEEK_DELAY, WorkerSettings
from rowpost.settings.yaml_file import Section, expand_secrets, find_environment, read_values
from rowpost.wire.address import DEFAULT_SCHEMA

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


def default_data_folder() -> Path:
    """Folder of the embedded server: ROWPOST_DATA, else the user's data folder."""
    named = os.environ.get("ROWPOST_DATA")
    return Path(named).expanduser() if named else Path(platformdirs.user_data_dir("rowpost", appauthor=False))


@dataclass(frozen=True)
class SupervisorSettings:
    """Times are seconds: until a stopping worker is killed, until the circuit breaker trips, that a spare idles, that a
    delayed message may be late.

    `maintenance_every`: between two looks after each queue's table, by one elected process; 0 leaves that to others.
    `wake_up`: let senders wake the supervisor where the engine can (PostgreSQL); else it looks once a peek delay.
    """

    error_queue: str = "error"
    stop_timeout: float = 30.0
    breaker_seconds: float = 30.0
    idle_timeout: float = 2.0
    delayed_lateness: float = 1.0
    maintenance_every: float = 300.0
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
    top = Section(path, "", read_values(path))
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
        queues=read_queues(top, dialect, schema, compat, clustered),
        sagas=read_sagas(top, lambda section: canonical_name(section, section.name, dialect, schema), dialect),
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


def _read_supervisor(top: Section, dialect: str, schema: str) -> SupervisorSettings:
    section = top.section("supervisor")
    if section is None:
        return SupervisorSettings()
    error_queue = section.text("error_queue", default="error")
    supervisor = SupervisorSettings(
        error_queue=canonical_name(section, error_queue, dialect, schema, key="error_queue"),
        stop_timeout=section.seconds("stop_timeout", default=30.0, at_least=0.0),
        breaker_seconds=section.seconds("breaker_seconds", default=30.0, at_least=0.0),
        idle_timeout=section.seconds("idle_timeout", default=2.0, at_least=0.0),
        delayed_lateness=section.seconds("delayed_lateness", default=1.0, at_least=MINIMUM_PEEK_DELAY),
        maintenance_every=section.seconds("maintenance_every", default=300.0, at_least=0.0),
        wake_up=section.flag("wake_up", default=True),
    )
    section.finish()
    return supervisor


def _postgresql_target(url: str) -> str:
    parts: Any = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{host or 'localhost'}{parts.path}".rstrip("/")
