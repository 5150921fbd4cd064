"""What both dialects say about an error, and what to do."""

from __future__ import annotations

from rowpost.database.contract import CORE, Procedure
from rowpost.database.dialects.protocol import Statement
from rowpost.errors import FeatureMissing, QueueNotFound, RowpostError, SagaNotDeployed, SchemaMissing

__all__ = ["KEYS_USED_UP", "is_of_saga", "missing_object", "where_in", "where_rights_are"]

KEYS_USED_UP = "Nothing was stored. `rowpost queue check` prints the statement that widens the key of a queue's table"


def where_in(statement: Statement | None) -> str:
    """Return the end of a message, which names the queue or the saga of a call; empty if there is none."""
    return f" ({statement.procedure.scope} {statement.queue!r})" if statement and statement.queue else ""


def is_of_saga(statement: Statement | None) -> bool:
    """Return whether a call is one of a saga."""
    return statement is not None and statement.procedure.scope == "saga"


def where_rights_are(statement: Statement | None, add_member: str) -> str:
    """Return what a login that lacks a right needs: for a call, or for a script of a deployment.

    `add_member` is the engine's statement that adds a login to the role `{role}`.
    """
    if statement is None or _is_of_deployment(statement.procedure):
        return (
            "rowpost doctor prints the statements that give a deployment its rights, and docs/for-dbas.md lists these "
            "rights."
        )
    granted = "rowpost queue grant prints the statements that give the right."
    if statement.procedure.side in ("send", "receive"):
        return granted
    role = next(
        f"rowpost_{each}" for each in ("reader", "body_reader", "operator") if each in statement.procedure.roles
    )
    needed = f"the role {role}: {add_member.format(role=role)}"
    if "endpoint" in statement.procedure.roles:
        return f"An endpoint's login: {granted} An operator's login needs {needed}"
    return f"The login needs {needed}"


def _is_of_deployment(procedure: Procedure) -> bool:
    return not procedure.roles or (procedure.folder == "deploy" and "endpoint" not in procedure.roles)


def missing_object(statement: Statement | None, said: str, *, table: bool) -> RowpostError:
    """Return the error for an object that a call needs and that does not exist.

    Args:
        said: what the server said.
        table: whether it is a table, and not a procedure.
    """
    feature = None if table else _missing_feature(statement)
    if feature is not None:
        return feature
    if statement is None or statement.queue is None:
        return SchemaMissing(
            f"rowpost is not deployed in this database, or is older than this program: {said}. Run: rowpost apply"
        )
    if is_of_saga(statement):
        return SagaNotDeployed(
            f"The saga {statement.queue!r} has no table or procedures here, or they are not as they were deployed: "
            f"{said}. Run rowpost verify, which says what is missing, and rowpost apply."
        )
    if table:
        return QueueNotFound(f"The table of the queue {statement.queue!r} is gone: {said}. Run: rowpost queue check")
    return QueueNotFound(
        f"No queue named {statement.queue!r} with the procedure {statement.procedure.name} is in this database. If "
        "rowpost queue list shows the queue, rowpost queue check says how to repair it; if not, rowpost queue create "
        "makes it."
    )


#: what a queue's own tables hold, by feature
_TABLES = {"delayed": "delayed messages", "lease": "leases, which an endpoint with receive='lease' needs,"}


def _missing_feature(statement: Statement | None) -> RowpostError | None:
    """Return what to raise for a procedure that does not exist because its feature is not declared; None if it is
    another cause.
    """
    if statement is None or statement.procedure.scope == "saga" or statement.procedure.feature == CORE:
        return None
    feature, name = statement.procedure.feature, statement.procedure.name
    if statement.queue is None:
        return FeatureMissing(
            f"{name} needs the feature {feature}, which is not deployed in this database: add `features: [{feature}]` "
            "to the environment's file and run: rowpost apply"
        )
    if feature in _TABLES:
        return QueueNotFound(
            f"The queue {statement.queue!r} has no table of {_TABLES[feature]} in this database: write "
            f"`{statement.queue}: "
            f"{{{feature}: true}}` below `queues:` in the environment's file and run: rowpost apply"
        )
    return QueueNotFound(
        f"No queue named {statement.queue!r} with the procedure {name} is in this database: `rowpost queue list` shows "
        f"the queues; if it is one of them, add `features: [{feature}]` to the environment's file and run: rowpost "
        "apply"
    )
