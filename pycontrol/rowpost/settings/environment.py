"""Settings of one environment: frozen values, read once from a YAML file.

`Settings` holds what belongs to the environment: engine, database, queues, workers, sagas, schedules, outboxes and
participants of transactions. `load_settings` reads it. The sections of the file are read by the other modules of this
package.

    settings = load_settings("production")        # deploy/environments/production.yml
    settings = load_settings(None)                # $ROWPOST_ENV, else local: the embedded PostgreSQL

The file contains no secrets: `${VARIABLE}` in a `url`, and only there, is replaced from the process environment. Every
mistake in the file is a SettingsError that names the file, the key and what to write instead.

Two variables of the process environment matter apart from those in a `url`: ROWPOST_ENV is the environment to take if
none is named, and ROWPOST_DATA is the folder of the embedded server's data.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal, get_args

import platformdirs
from msgspec import Meta

from rowpost.errors import SettingsError
from rowpost.settings import compat as generations
from rowpost.settings.compat import compat_of
from rowpost.settings.databases import OutboxSettings, read_outboxes, read_participants
from rowpost.settings.descriptor import MessageTypeSettings, read_message_types
from rowpost.settings.endpoint import EndpointSettings, HostSettings, check_address, read_endpoints, read_host
from rowpost.settings.log import LogSettings, read_log
from rowpost.settings.metrics import read_metrics_address
from rowpost.settings.odbc_keywords import check_odbc
from rowpost.settings.queue import QueueSettings, canonical_name, read_queues, with_partitions
from rowpost.settings.saga import SagaSettings, read_sagas
from rowpost.settings.schedule import ScheduleSettings, read_schedules
from rowpost.settings.service_control import ServiceControlSettings, read_service_control
from rowpost.settings.target import describe_target
from rowpost.settings.telemetry import TelemetrySettings, read_telemetry
from rowpost.settings.worker import MINIMUM_PEEK_DELAY, WorkerSettings
from rowpost.settings.yaml_file import (
    expand_secrets,
    find_environment,
    is_packaged,
    read_root,
    user_path,
    with_password,
)
from rowpost.settings.yaml_node import LONGEST_S, Node, Seconds, Texts, decode
from rowpost.wire.address import DEFAULT_SCHEMA, SUBSCRIPTION_TABLE, Naming, endpoint_name
from rowpost.wire.message_types import type_key

__all__ = [
    "FEATURES",
    "PROJECTS",
    "EndpointSettings",
    "HostSettings",
    "LogSettings",
    "MessageTypeSettings",
    "OutboxSettings",
    "QueueSettings",
    "SagaSettings",
    "ScheduleSettings",
    "Settings",
    "SupervisorSettings",
    "WorkerSettings",
    "default_data_folder",
    "load_settings",
    "with_partitions",
]


#: the folder of the projects' data in the user's data folder, and how much of a project's name is in that of its own
PROJECTS = "projects"
_PROJECT_NAME = 20


def default_data_folder() -> Path:
    """Return the folder of the data of a user's shared embedded server: ROWPOST_DATA, else the user's data folder.

    A user without a home directory has none. Then the folder begins with ~, and `embedded.start`, which alone needs it,
    refuses it.
    """
    named = os.environ.get("ROWPOST_DATA")
    try:
        return Path(named).expanduser() if named else Path(platformdirs.user_data_dir("rowpost", appauthor=False))
    except RuntimeError:
        return Path(named or "~/rowpost")


#: whether a deployment makes rowpost's roles on PostgreSQL, and grants them their rights
Roles = Literal["none", "cluster"]
Feature = Literal["maintenance", "outbox", "sagas", "schedules", "spark", "transactions"]
#: what an environment may declare: the features of sql/contract.yml but for those that the core and single queues have
FEATURES: tuple[str, ...] = get_args(Feature)
#: the sections of a file, which other modules read
_SECTIONS = (
    "queues",
    "external",
    "sagas",
    "schedules",
    "supervisor",
    "participants",
    "outbox",
    "log",
    "service_control",
    "telemetry",
    "host",
    "endpoints",
    "message_types",
)


@dataclass(frozen=True)
class SupervisorSettings:
    """Settings of the process that starts the workers. All times are seconds.

    Attributes:
        error_queue: the queue of messages that failed.
        stop_timeout: time after which a worker that is asked to stop is interrupted, and then killed.
        breaker_seconds: time of failures after which the circuit breaker opens.
        idle_timeout: time after which a worker that is not needed stops.
        idle_workers: so many queues keep a worker while they have no work: those that had work last. The first messages
            of the others go to one warm worker, which has imported all handlers.
        delayed_lateness: longest time between two checks for delayed messages that are due.
        maintenance_every: time between two rounds of maintenance of the queues' tables and the outboxes, by one elected
            process; 0 if something else does it. On SQL Server, tables are maintained only with the feature
            maintenance.
        wake_up: whether senders wake the supervisor (PostgreSQL). If not, it peeks once in each peek delay. With
            "everybody", a trigger on each queue's table wakes it for plain inserts too, such as those of .NET
            endpoints.
        metrics: where `rowpost run` serves metrics: a port of this machine, or host:port. None serves none, and
            measures nothing for them.
        peek_batch_size: a peek stops counting at so many messages, 1 to 1,000. A peek that finds fewer asks for fewer
            workers.
    """

    error_queue: str = "error"
    stop_timeout: Seconds = 30.0
    breaker_seconds: Seconds = 30.0
    idle_timeout: Seconds = 2.0
    idle_workers: Annotated[int, Meta(ge=0, le=10_000)] = 1
    delayed_lateness: Annotated[float, Meta(ge=MINIMUM_PEEK_DELAY, le=LONGEST_S)] = 1.0
    maintenance_every: Seconds = 300.0
    wake_up: bool | Literal["everybody"] = True
    peek_batch_size: Annotated[int, Meta(ge=1, le=1000)] = 1000
    metrics: int | str | None = None


@dataclass(frozen=True)
class Settings:
    """One environment.

    Attributes:
        environment: its name.
        engine: postgresql or sqlserver.
        url: a secret, which repr and str leave out; None for the embedded PostgreSQL. `target` describes where it
            leads.
        data_folder: folder of the embedded PostgreSQL. An environment's file has that of its project, unless it or
            ROWPOST_DATA names another one; without a file it is the user's.
        default_schema: the schema of queues whose names have none.
        subscription_table: the address of the table in which this environment's endpoints subscribe, in the short form.
        compat: the generation of the NServiceBus transport that other endpoints run (`settings.compat`).
        audit_queue: where endpoints whose code names no audit queue store copies of handled messages; None: nowhere.
        queues: their names are canonical: in an environment whose default schema is `nsb`, `Sales` is `Sales@[nsb]`.
        sagas: tables of sagas.
        schedules: messages that are sent at due times.
        supervisor: settings of the process that starts the workers.
        log: what is logged, and in which form.
        folder: where the file was found; None if the settings do not come from a file.
        participants: names and URLs of databases that can take part in transactions. The URLs are secrets.
        outboxes: business databases with an outbox.
        features: what a deployment makes apart from the core (`FEATURES`); sections of sagas, schedules, outboxes and
            participants add theirs. The embedded server, and settings that do not come from a file, have all unless
            they name some.
        roles: on PostgreSQL. With "cluster", a deployment makes rowpost's roles, which belong to the whole server, and
            grants them their rights in the database. With "none", it makes and grants none, and only the login that
            owns rowpost works. None: "none" for the embedded server, and "cluster" for every other.
        service_control: where endpoints report that they are alive; None: nowhere.
        telemetry: where spans and meters of OpenTelemetry go; None: nowhere, and nothing is observed.
        host: how ServiceControl tells the instances of this environment's endpoints apart.
        endpoints: what the environment says about single endpoints.
        message_types: what people should know about message types.
        business_of: the outbox whose business database these settings lead to; empty for the database of the queues.
        named: names of endpoints by their queues, as `endpoint.hosting` has found them: a queue may have another name.
    """

    environment: str = "local"
    engine: str = "postgresql"
    url: str | None = field(default=None, repr=False)
    data_folder: Path = field(default_factory=default_data_folder)
    default_schema: str = "public"
    subscription_table: str = SUBSCRIPTION_TABLE
    compat: str = generations.DEFAULT
    audit_queue: str | None = None
    queues: tuple[QueueSettings, ...] = ()
    sagas: tuple[SagaSettings, ...] = ()
    schedules: tuple[ScheduleSettings, ...] = ()
    supervisor: SupervisorSettings = SupervisorSettings()
    log: LogSettings = field(default_factory=LogSettings)
    folder: Path | None = None
    participants: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    outboxes: tuple[OutboxSettings, ...] = ()
    features: tuple[str, ...] = FEATURES
    roles: Roles | None = None
    business_of: str = ""
    named: tuple[tuple[str, str], ...] = ()
    service_control: ServiceControlSettings | None = None
    telemetry: TelemetrySettings | None = None
    host: HostSettings = field(default_factory=HostSettings)
    endpoints: tuple[EndpointSettings, ...] = ()
    message_types: tuple[MessageTypeSettings, ...] = ()

    @property
    def declarant(self) -> str:
        """Under which name a database records what these settings declare: a business database may be that of the
        queues.
        """
        return f"{self.environment}, outbox {self.business_of}" if self.business_of else self.environment

    @property
    def own_sagas(self) -> tuple[SagaSettings, ...]:
        """The sagas whose tables are in the database of these settings."""
        return tuple(saga for saga in self.sagas if saga.outbox == self.business_of)

    @property
    def embedded(self) -> bool:
        """Whether the database is the private PostgreSQL that rowpost starts."""
        return self.url is None

    @property
    def has_roles(self) -> bool:
        """Whether logins work by rowpost's roles. SQL Server's belong to the database, and are always made."""
        if self.engine == "sqlserver":
            return True
        return not self.embedded if self.roles is None else self.roles == "cluster"

    @property
    def target(self) -> str:
        """Server and database as a text, without user, password or any other part of the url.

        >>> Settings(url="postgresql://app:secret@db01:5432/shop").target
        'postgresql db01:5432/shop'
        """
        if self.url is None:
            return f"embedded PostgreSQL in {self.data_folder}"
        return f"{self.engine} {describe_target(self.engine, self.url)}"

    @property
    def naming(self) -> Naming:
        """Where names without a schema lead."""
        return Naming(self.engine, self.default_schema)

    def endpoint(self, name: str) -> EndpointSettings:
        """Return what the environment says about an endpoint, by its name or its queue's."""
        names = (name, self.endpoint_name(name))
        return next((each for each in self.endpoints if each.name in names), EndpointSettings(name))

    def endpoint_name(self, queue: str) -> str:
        """Return the name of the endpoint that receives from a queue."""
        return dict(self.named).get(queue) or endpoint_name(queue)

    def host_of(self, name: str) -> HostSettings:
        """Return the host of an endpoint, by its name or its queue's."""
        return self.endpoint(name).host or self.host

    def message_type(self, name: str) -> MessageTypeSettings | None:
        """Return what people should know about a message type; None if the environment says nothing."""
        return next((each for each in self.message_types if type_key(each.name) == type_key(name)), None)

    def queue(self, name: str) -> QueueSettings | None:
        """Return the declared queue of that name; None if there is none."""
        return next((queue for queue in self.queues if queue.name == name), None)


@dataclass(frozen=True)
class _Top:
    """The keys of the file that are not sections. What their absence means depends on the engine, or on the file."""

    environment: str | None = None
    engine: Literal["embedded", "postgresql", "sqlserver"] = "embedded"
    url: str | None = field(default=None, repr=False)
    password_file: str | None = None
    password_command: Texts = ()
    data_folder: str | None = None
    default_schema: str | None = None
    subscription_table: str | None = None
    audit_queue: str | None = None
    compat: Literal["v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9"] | None = None
    features: tuple[Feature, ...] | None = None
    roles: Roles | None = None


def load_settings(environment: str | Path | None = None, *, offline: bool = False) -> Settings:
    """Read an environment.

    Args:
        environment: its name, or the path of its file; None for ROWPOST_ENV, or else `local`.
        offline: nothing will be connected to, so that variables of URLs need no value. Those without one stay as they
            are written.

    Raises:
        SettingsError: the file is missing, or something in it is wrong.
    """
    path = find_environment(environment or os.environ.get("ROWPOST_ENV") or "local")
    root = read_root(path)
    if not root.all:
        raise SettingsError(f"{path}: is empty: write the engine and the queues, such as engine: embedded")
    sections = {key: root.child(key) for key in _SECTIONS}
    top = decode(root, _Top)
    check_address(root, "audit_queue", top.audit_queue)
    dialect = "postgresql" if top.engine == "embedded" else top.engine
    schema = top.default_schema or DEFAULT_SCHEMA[dialect]
    compat = top.compat or Settings.compat
    clustered = compat_of(compat).clustered if top.compat else True
    supervisor = _read_supervisor(sections["supervisor"], dialect, schema)
    queues = read_queues(root, dialect, schema, compat, clustered, supervisor.error_queue)
    outboxes = read_outboxes(root, offline=offline)
    if top.roles == "none" and "postgresql" not in (dialect, *(each.engine for each in outboxes)):
        raise root.error(
            "roles",
            "'none' is for PostgreSQL only, whose roles belong to the whole server. SQL Server's roles belong to the "
            "database, and the login that deploys may always make them: remove the key",
        )
    return Settings(
        environment=top.environment or path.stem,
        engine=dialect,
        url=_read_url(root, top, offline=offline),
        data_folder=_data_folder(path, top.data_folder),
        default_schema=schema,
        subscription_table=canonical_name(
            root, top.subscription_table or SUBSCRIPTION_TABLE, dialect, schema, key="subscription_table"
        ),
        compat=compat,
        audit_queue=top.audit_queue,
        queues=queues,
        schedules=read_schedules(
            root,
            lambda node, key, name: canonical_name(node, name, dialect, schema, key=key),
            {queue.name for queue in queues if queue.kind == "external"},
        ),
        sagas=read_sagas(root, lambda node: canonical_name(node, node.name, dialect, schema), dialect),
        supervisor=supervisor,
        log=read_log(sections["log"]),
        service_control=read_service_control(sections["service_control"], Naming(dialect, schema)),
        telemetry=read_telemetry(sections["telemetry"]),
        host=read_host(sections["host"]) or HostSettings(),
        endpoints=read_endpoints(root),
        message_types=read_message_types(root),
        folder=path.parent,
        participants=read_participants(root, dialect, offline=offline),
        outboxes=outboxes,
        features=(FEATURES if top.engine == "embedded" else ()) if top.features is None else top.features,
        roles=top.roles,
    )


def _read_url(root: Node, top: _Top, *, offline: bool) -> str | None:
    if top.engine == "embedded":
        for key, value in (
            ("url", top.url),
            ("password_file", top.password_file),
            ("password_command", top.password_command or None),
        ):
            if value is not None:
                raise root.error(key, f"the embedded engine has no {key}: remove it, or write engine: postgresql")
        return None
    if top.url is None:
        example = (
            '"postgresql://app:${APP_PASSWORD}@db01/shop"'
            if top.engine == "postgresql"
            else '"Server=sql01;Database=shop;UID=app;PWD=${APP_PASSWORD}"'
        )
        raise root.error("url", f"missing: engine {top.engine} needs one, such as {example}")
    url = expand_secrets(root, "url", top.url, top.engine, offline=offline)
    if offline and url.startswith("${"):
        return url
    if top.engine == "postgresql" and not url.startswith(("postgresql://", "postgres://")):
        raise root.error("url", "must be a PostgreSQL url that starts with postgresql://")
    if top.engine == "sqlserver":
        check_odbc(root, url)
    return with_password(root, url, top.password_file, top.password_command)


def _data_folder(file: Path, folder: str | None) -> Path:
    if os.environ.get("ROWPOST_DATA") or (folder is None and is_packaged(file)):
        return default_data_folder()
    return _project_folder(file) if folder is None else (file.parent / user_path(folder)).resolve()


def _project_folder(file: Path) -> Path:
    """Return the data folder of the project to which an environment's file belongs: that of the file's folder.

    So two projects never meet each other's messages, although their queues may have the same names.
    """
    place = file.resolve().parent
    root = place.parents[1] if place.parts[-2:] == ("deploy", "environments") else place
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", root.name)[:_PROJECT_NAME] or "project"
    number = hashlib.sha256(os.fsencode(place)).hexdigest()[:8]
    return default_data_folder() / PROJECTS / f"{name}-{number}"


def _read_supervisor(node: Node | None, dialect: str, schema: str) -> SupervisorSettings:
    if node is None:
        return SupervisorSettings(error_queue=Naming(dialect, schema).canonical(SupervisorSettings.error_queue))
    supervisor = decode(node, SupervisorSettings)
    if supervisor.wake_up == "everybody" and dialect == "sqlserver":
        raise node.error(
            "wake_up",
            "'everybody' is for PostgreSQL only, because SQL Server has no NOTIFY: write true, and a shorter "
            "`peek_delay` at the workers of queues whose messages must not wait",
        )
    if supervisor.metrics is not None:
        try:
            read_metrics_address(supervisor.metrics)
        except SettingsError as error:
            raise node.error("metrics", str(error)) from error
    name = canonical_name(node, supervisor.error_queue, dialect, schema, key="error_queue")
    return replace(supervisor, error_queue=name)
