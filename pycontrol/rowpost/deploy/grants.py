"""How each engine spells the rights that an endpoint's login gets."""

from __future__ import annotations

from rowpost.database.contract import Procedure
from rowpost.database.dialects.protocol import Dialect

__all__ = ["grant_execute", "grant_role", "grant_tables"]


def grant_execute(dialect: Dialect, procedure: Procedure, key: str | None, login: str) -> str:
    """Return the right to run a procedure, of one queue if `key` names it: GRANT EXECUTE ON rowpost.[send_message:Sales] TO [shop];"""
    kind = "" if dialect.name == "sqlserver" else "FUNCTION "
    name = dialect.quote(procedure.name if key is None else f"{procedure.name}:{key}")
    return f"GRANT EXECUTE ON {kind}rowpost.{name} TO {dialect.quote(login)};"


def grant_role(dialect: Dialect, role: str, login: str) -> str:
    """Membership of one of the product's roles: what is not a queue's own."""
    if dialect.name == "sqlserver":
        return f"ALTER ROLE {role} ADD MEMBER {dialect.quote(login)};"
    return f"GRANT {role} TO {dialect.quote(login)};"


def grant_tables(dialect: Dialect, table: str, login: str) -> str:
    """Return the rights that NServiceBus's own endpoints need on a queue's table, as db_datareader and db_datawriter give them.

    For endpoints that send and receive by plain SQL. rowpost's own need none of it.
    """
    return f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {dialect.quote(login)};"
