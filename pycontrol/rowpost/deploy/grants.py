"""The rights of an endpoint's login: the statements that grant them, for a DBA to run, or run in one transaction.

    grant_statements(settings, "shop", receive_from=["Sales"], send_to=["Billing"])     spells them, offline
    grant(database, "shop", receive_from=["Sales"], send_to=["Billing"])                runs them

The login may then receive from its own queues, send to its destinations (the error queue among them), keep the state of
its sagas, and empty the queues that are purged when the endpoint starts. It gets no right on any table, unless `tables`
asks for the rights on tables with which NServiceBus's own endpoints work.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

from rowpost.database.connection import Connection
from rowpost.database.contract import ROLES, Procedure, load_contract
from rowpost.database.dialects.choice import dialect_for
from rowpost.database.dialects.protocol import Dialect
from rowpost.deploy.deployment import changing
from rowpost.deploy.entries import describe_queue
from rowpost.deploy.features import deployed_features
from rowpost.deploy.plan import declared_features
from rowpost.deploy.scripts import Script, load_scripts
from rowpost.deploy.state import read_state
from rowpost.errors import DeployError
from rowpost.settings.environment import QueueSettings, Settings
from rowpost.wire.address import DEFAULT_SCHEMA, parse_address, queue_key

__all__ = ["LoginAccess", "grant", "grant_execute", "grant_role", "grant_schema", "grant_statements", "grant_tables"]

ENDPOINT_ROLE = "rowpost_endpoint"


def grant_execute(dialect: Dialect, procedure: Procedure, key: str | None, login: str) -> str:
    """Return the right to run a procedure, of one queue if `key` names it:

    GRANT EXECUTE ON rowpost.[send_message:Sales] TO [shop];
    """
    kind = "" if dialect.name == "sqlserver" else "FUNCTION "
    name = dialect.quote(procedure.name if key is None else f"{procedure.name}:{key}")
    return f"GRANT EXECUTE ON {kind}rowpost.{name} TO {dialect.quote(login)};"


def grant_role(dialect: Dialect, role: str, login: str) -> str:
    """Return the membership of one of the product's roles, which has the rights that are not a queue's own."""
    if dialect.name == "sqlserver":
        return f"ALTER ROLE {role} ADD MEMBER {dialect.quote(login)};"
    return f"GRANT {role} TO {dialect.quote(login)};"


def grant_tables(dialect: Dialect, table: str, login: str) -> str:
    """Return the rights that NServiceBus's own endpoints need on a queue's table, as db_datareader and db_datawriter
    give them.

    For endpoints that send and receive by plain SQL. rowpost's own need none of it.
    """
    return f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {dialect.quote(login)};"


def grant_schema(dialect: Dialect, schema: str, login: str) -> str:
    """Return the right that PostgreSQL asks for before it looks for a table in a schema."""
    return f"GRANT USAGE ON SCHEMA {dialect.quote(schema)} TO {dialect.quote(login)};"


class LoginAccess(TypedDict, total=False):
    """What a login may do: the names of the queues from which it receives, to which it sends and which it purges, the
    tables of its sagas, and whether it gets the rights on the tables of all these.
    """

    receive_from: Sequence[str]
    send_to: Sequence[str]
    purge: Sequence[str]
    sagas: Sequence[str]
    tables: bool


@dataclass(frozen=True)
class _Deployed:
    """What is deployed.

    Attributes:
        features: those whose procedures the queues have.
        without_delayed: queues that have no procedures for delayed messages.
        with_lease: queues that have procedures for leases.
        moving: sagas that have a procedure for a second correlation.
    """

    features: Collection[str]
    without_delayed: Collection[str]
    with_lease: Collection[str]
    moving: Collection[str]


def grant_statements(settings: Settings, login: str, **access: Unpack[LoginAccess]) -> list[str]:
    """Return the statements that grant a login its rights in an environment, as its file declares it.

    Raises DeployError if the environment has no roles.
    """
    deployed = _Deployed(
        features=declared_features(settings, load_scripts(settings.engine)),
        without_delayed={queue.name for queue in settings.queues if not queue.delayed or queue.kind == "external"},
        with_lease={queue.name for queue in settings.queues if queue.lease},
        moving={saga.name for saga in settings.sagas if saga.transitional},
    )
    return _spell(settings.engine, login, access, deployed)


def grant(database: Connection, login: str, **access: Unpack[LoginAccess]) -> list[str]:
    """Grant a login its rights in a database, in one transaction, and return the statements. Raises DeployError."""
    state = read_state(database)
    deployed = _Deployed(
        features=deployed_features(load_scripts(database.engine), state),
        without_delayed={queue.name for queue in state.queues if not queue.delayed},
        with_lease={queue.name for queue in state.queues if queue.lease},
        moving={saga.name for saga in state.sagas if saga.transitional_name},
    )
    statements = _spell(database.engine, login, access, deployed)
    with changing(database, f"rights of {login}") as (running, _):
        for number, statement in enumerate(statements, 1):
            running.run_script(Script(f"statement {number} of the grants", statement))
    return statements


def _spell(engine: str, login: str, access: LoginAccess, deployed: _Deployed) -> list[str]:
    if engine == "postgresql" and ROLES not in deployed.features:
        raise DeployError(
            f"The login {login} is granted nothing: with `roles: none` only the login that owns rowpost works. Write "
            "`roles: cluster` into the environment's file, and run rowpost apply with a login that may create roles."
        )
    dialect, contract = dialect_for(engine), load_contract()
    wanted = [
        (procedure, name)
        for side, queues in (("receive", access.get("receive_from", ())), ("send", access.get("send_to", ())))
        for name in queues
        for procedure in contract.templates(
            delayed=name not in deployed.without_delayed,
            features=deployed.features,
            lease=name in deployed.with_lease,
        )
        if procedure.side == side
    ]
    wanted += [(contract.find("purge_queue", "queue"), name) for name in access.get("purge", ())]
    wanted += [
        (each, name)
        for name in access.get("sagas", ())
        for each in contract.saga_templates(name in deployed.moving)
        if each.side == "receive"
    ]
    grants = [
        grant_execute(dialect, procedure, queue_key(parse_address(name), engine), login) for procedure, name in wanted
    ]
    if access.get("tables"):
        grants += [grant_schema(dialect, schema, login) for schema in _schemas(engine, access)]
        grants += [grant_tables(dialect, table, login) for table in dict.fromkeys(_tables(dialect, access, deployed))]
    return [grant_role(dialect, ENDPOINT_ROLE, login), *grants]


def _schemas(engine: str, access: LoginAccess) -> list[str]:
    """Return the schemas in which a login with rights on tables finds none without a right of its own (PostgreSQL)."""
    if engine != "postgresql":
        return []
    names = [*access.get("receive_from", ()), *access.get("send_to", ()), *access.get("sagas", ())]
    schemas = {str(parse_address(name).qualified(engine).schema) for name in names}
    return sorted(schemas - {DEFAULT_SCHEMA[engine]})


def _tables(dialect: Dialect, access: LoginAccess, deployed: _Deployed) -> list[str]:
    """Return the quoted names of the tables of queues, of their delayed messages, and of sagas."""
    queues = [*access.get("receive_from", ()), *access.get("send_to", ())]
    names = {
        name: describe_queue(QueueSettings(name, "external"), dialect.name).placeholders(dialect) for name in queues
    }
    found = [names[name]["queue_table"] for name in queues]
    found += [names[name]["delayed_table"] for name in queues if name not in deployed.without_delayed]
    addresses = [parse_address(name).qualified(dialect.name) for name in access.get("sagas", ())]
    return [*found, *(f"{dialect.quote(str(each.schema))}.{dialect.quote(each.table)}" for each in addresses)]
