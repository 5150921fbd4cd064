"""What a server has, read once and passed on: the journal, the registry, the version, and what environments
declared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from rowpost.database.connection import Connection
from rowpost.database.dialects.relations import HAS_ROLES
from rowpost.deploy.entries import DeclaredFeature, Entry, QueueEntry, SagaEntry, ScheduleEntry, SubscriptionEntry
from rowpost.errors import SchemaMissing, SchemaTooNew

__all__ = ["JournalEntry", "ServerState", "check_not_newer", "is_deployed", "read_state"]

Kind = TypeVar("Kind", QueueEntry, SagaEntry, ScheduleEntry, SubscriptionEntry)

LIST_SAGAS = "procedures/saga/list_saga_types.sql"
LIST_SCHEDULES = "procedures/schedule/list_schedules.sql"
LIST_SUBSCRIPTION_TABLES = "procedures/pubsub/list_subscription_tables.sql"
LIST_FEATURES = "procedures/deploy/list_features.sql"


class JournalEntry(NamedTuple):
    """A row of the journal as list_scripts returns it."""

    script_name: str
    script_kind: str
    script_hash: str
    object_kind: str | None
    object_name: str | None
    recorded_fingerprint: str | None
    living_fingerprint: str | None
    applied_at: Any
    applied_by: str

    @property
    def key(self) -> str:
        """The key of the entry of the registry that the script was rendered for; empty if there is none."""
        return "" if self.object_kind == "schema" else self.script_name.partition(".sql:")[2]

    @property
    def forget_call(self) -> tuple[str, None, dict[str, Any]]:
        """The call that takes it out of the journal, as Connection.call_all takes it."""
        return "forget_script", None, {"script_name": self.script_name}

    @property
    def is_saga_s(self) -> bool:
        """Whether the script is one of the scripts of sagas; a queue may have the same key."""
        return "/saga/" in self.script_name


@dataclass(frozen=True)
class ServerState:
    """What a server has.

    Attributes:
        journal: what ran.
        registry: the entries. Whether a queue has a trigger on inserts is known by the journal.
        schema_version: the newest schema number; 0 if none was recorded.
        tool_version: the version of rowpost that deployed it.
        declared: each environment with each feature that it declared.
        has_roles: whether the roles of the cluster have rights here. An earlier release has granted them without a
            row of the journal.
    """

    journal: tuple[JournalEntry, ...] = ()
    registry: tuple[Entry, ...] = ()
    schema_version: int = 0
    tool_version: str = ""
    declared: tuple[tuple[str, DeclaredFeature], ...] = ()
    has_roles: bool = False

    @property
    def queues(self) -> list[QueueEntry]:
        """The registered queues."""
        return [each for each in self.registry if isinstance(each, QueueEntry)]

    @property
    def sagas(self) -> list[SagaEntry]:
        """The registered sagas."""
        return [each for each in self.registry if isinstance(each, SagaEntry)]


def is_deployed(database: Connection) -> bool:
    """Return whether rowpost is deployed in the database."""
    try:
        database.call("get_version")
    except SchemaMissing:
        return False
    return True


def read_state(database: Connection) -> ServerState:
    """Read what a server has. Raises SchemaMissing if nothing is deployed."""
    journal = tuple(map(JournalEntry._make, database.call("list_scripts")))
    ran = {entry.script_name for entry in journal}
    woken = {entry.key for entry in journal if entry.object_kind == "trigger"}
    registry: list[Entry] = []
    for queue in _entries(database, QueueEntry):
        registry.append(replace(queue, wake_up=True) if queue.key in woken else queue)
    if LIST_SAGAS in ran:  # else the feature is not deployed
        registry += _entries(database, SagaEntry)
    if LIST_SUBSCRIPTION_TABLES in ran:  # else an earlier release has deployed
        registry += _entries(database, SubscriptionEntry)
    if LIST_SCHEDULES in ran:
        registry += _entries(database, ScheduleEntry)
    declared = (
        [(row.environment, DeclaredFeature.parse(row.feature)) for row in database.call("list_features")]
        if LIST_FEATURES in ran
        else []
    )
    version = database.call("get_version")
    schema_version, tool_version = version[0][:2] if version else (0, "")
    return ServerState(
        journal, tuple(registry), schema_version, tool_version, tuple(declared), _roles_have_rights(database)
    )


def _roles_have_rights(database: Connection) -> bool:
    if database.engine != "postgresql":
        return False
    with database.translated():
        return database.dialect.script(database.driver_connection, HAS_ROLES) == [(True,)]


def _entries(database: Connection, kind: type[Kind]) -> list[Kind]:
    return [kind.from_row(row) for row in database.call(kind.listed)]


def check_not_newer(schema_version: int, state: ServerState) -> None:
    """Check that this release's schema is not older than the server's. Raises SchemaTooNew."""
    if state.schema_version > schema_version:
        raise SchemaTooNew(
            f"The database has schema {state.schema_version}, deployed by rowpost {state.tool_version}; this rowpost "
            f"brings schema {schema_version}. Use a rowpost at least as new as the database's."
        )
