"""What `rowpost doctor` checks on SQL Server and Azure SQL: what replicas and managed servers often do not allow.

Nothing is changed. Rights that only a deployment needs are a note if rowpost is deployed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rowpost.database.dialects.protocol import Check
from rowpost.errors import UnsupportedServer

if TYPE_CHECKING:
    import pyodbc

__all__ = [
    "COMPATIBILITY", "CONTROL", "DATABASE", "EXECUTABLE", "INTERNAL", "OWNERS", "check_compatibility", "checks",
    "describe", "describe_internal",
]  # fmt: skip

#: the rendered names of the procedures in a JSON array that the login may execute
EXECUTABLE = (
    "SELECT o.name FROM sys.procedures AS o WHERE o.schema_id = SCHEMA_ID(N'rowpost')"
    " AND LEFT(o.name, CHARINDEX(N':', o.name + N':') - 1) COLLATE DATABASE_DEFAULT"
    " IN (SELECT j.value FROM OPENJSON(?) AS j)"
    " AND HAS_PERMS_BY_NAME(N'rowpost.' + QUOTENAME(o.name), N'OBJECT', N'EXECUTE') = 1;"
)
DATABASE = "SELECT CAST(DATABASEPROPERTYEX(DB_NAME(), 'Updateability') AS nvarchar(20)), QUOTENAME(USER_NAME());"
#: the database's compatibility level; Babelfish says 120 and has no levels
COMPATIBILITY = (
    "SELECT CASE WHEN SERVERPROPERTY('babelfish') IS NULL THEN d.compatibility_level END FROM sys.databases AS d WHERE "
    "d.name = DB_NAME();"
)
_LOWEST_LEVEL = 130  # the first with OPENJSON
#: the schemas with their owners, quoted
OWNERS = "SELECT s.name, QUOTENAME(USER_NAME(s.principal_id)) FROM sys.schemas AS s;"
#: how many of the two rights in the database the user of rowpost's procedures has; NULL if rowpost is not deployed, the
#: login may not see it, or the engine (Babelfish) has no such user
INTERNAL = """
SELECT COUNT(p.permission_name)
FROM (SELECT 1 AS one WHERE SERVERPROPERTY('babelfish') IS NULL AND SCHEMA_ID(N'rowpost') IS NOT NULL) AS d
LEFT JOIN sys.database_permissions AS p
    ON p.grantee_principal_id = DATABASE_PRINCIPAL_ID(N'rowpost_internal') AND p.class = 0 AND p.state <> 'D'
    AND p.permission_name IN (N'VIEW DEFINITION', N'VIEW DATABASE STATE')
GROUP BY d.one
HAVING HAS_PERMS_BY_NAME(QUOTENAME(DB_NAME()), N'DATABASE', N'CONTROL') = 1;
"""
#: whether the login may do all that apply does: CREATE SCHEMA AUTHORIZATION dbo, EXECUTE AS and GRANT need more than
#: rights to create
CONTROL = "SELECT HAS_PERMS_BY_NAME(QUOTENAME(DB_NAME()), N'DATABASE', N'CONTROL');"


def checks(connection: pyodbc.Connection, schemas: Sequence[str], *, roles: bool) -> Iterator[Check]:
    """Check a database in which queues in these schemas are, or are to be, deployed. The roles belong to the database,
    and are always there.

    Raises:
        pyodbc.Error: the connection was lost, or the server does not know a function of the queries.
    """
    updateability, login = connection.execute(DATABASE).fetchone()
    controls = bool(connection.execute(CONTROL).fetchval())
    owners = {str(name): str(owner) for name, owner in connection.execute(OWNERS).fetchall()}
    try:
        check_compatibility(connection.execute(COMPATIBILITY).fetchval())
    except UnsupportedServer as error:
        yield Check("compatibility level", "bad", str(error))
    yield from describe(updateability, login, controls, owners, schemas)
    yield from describe_internal(connection.execute(INTERNAL).fetchval())


def describe_internal(rights: int | None) -> Iterator[Check]:
    """Say whether the user that rowpost's procedures run as has its two rights in the database; None: unknown."""
    if rights == 2:
        yield Check("user rowpost_internal", "ok", "it may see tables and read the database's state")
    elif rights is not None:
        found = "it lacks VIEW DEFINITION or VIEW DATABASE STATE: publishing, metrics and maintenance fail"
        yield Check("user rowpost_internal", "bad", found, "run rowpost apply, which grants them again")


def check_compatibility(level: int | None) -> None:
    """Check a database's compatibility level; None on an engine that has none. Raises UnsupportedServer."""
    if level is not None and level < _LOWEST_LEVEL:
        raise UnsupportedServer(
            f"The database has compatibility level {level}, and rowpost needs {_LOWEST_LEVEL} or higher, for OPENJSON. "
            "Nothing was changed. An administrator runs: ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = "
            f"{_LOWEST_LEVEL};"
        )


def describe(
    updateability: str, login: str, controls: bool, owners: dict[str, str], schemas: Sequence[str]
) -> Iterator[Check]:
    """Say what the server's answers mean. `login` and the owners of schemas in `owners` are quoted."""
    if updateability == "READ_ONLY":
        advice = "name the primary in the url, and no ApplicationIntent=ReadOnly"
        yield Check("writable", "bad", "the database is read-only: a secondary replica, or set so", advice)
    else:
        yield Check("writable", "ok", "the database can be written to")
    owner = owners.get("rowpost")
    if controls:
        yield Check("rights to deploy", "ok", "this login has CONTROL of the database, which apply needs")
    else:
        yield Check(
            "rights to deploy",
            "bad" if owner is None else "note",
            "this login has no CONTROL of the database, which apply needs: dbo becomes the owner of rowpost",
            f"an administrator runs: ALTER ROLE db_owner ADD MEMBER {login};",
        )
    others = [name for name in schemas if owner is not None and owners.get(name, owner) != owner]
    if others:
        found = (
            f"{owner} owns the schema rowpost, and not {', '.join(others)}: a login that may only execute procedures "
            "is refused"
        )
        advice = (
            "rowpost queue check names the tables: give each to dbo, which removes all rights on it; then run rowpost "
            "apply and rowpost queue grant"
            if owner == "[dbo]"
            else "an administrator runs: ALTER AUTHORIZATION ON SCHEMA::rowpost TO dbo; then rowpost apply"
        )
        yield Check("owner of rowpost", "bad", found, advice)
