"""What `rowpost doctor` checks on SQL Server and Azure SQL: what replicas and managed servers often do not allow.

Nothing is changed. Rights that only a deployment needs are a note if rowpost is deployed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rowpost.database.dialects.protocol import Check
from rowpost.database.dialects.sqlserver.odbc import load_pyodbc
from rowpost.errors import UnsupportedServer

if TYPE_CHECKING:
    import pyodbc

__all__ = [
    "COMPATIBILITY", "DATABASE", "EXECUTABLE", "MISSING", "OWNERS", "OWNER_LOGIN", "check_compatibility", "checks",
    "describe", "describe_owner",
]  # fmt: skip

#: the rendered names of the procedures in a JSON array that the login may execute
EXECUTABLE = (
    "SELECT o.name FROM sys.procedures AS o WHERE o.schema_id = SCHEMA_ID(N'rowpost')"
    " AND LEFT(o.name, CHARINDEX(N':', o.name + N':') - 1) IN (SELECT j.value FROM OPENJSON(?) AS j)"
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
#: whether the owner of the database, dbo, is a login of this server: not on Azure SQL Database, whose logins are in
#: another database
OWNER_LOGIN = """
SELECT CASE WHEN CAST(SERVERPROPERTY('EngineEdition') AS int) <> 5 AND p.sid IS NOT NULL AND SUSER_SNAME(p.sid) IS NULL THEN 0 ELSE 1 END
FROM sys.database_principals AS p
WHERE p.name = N'dbo';
"""  # noqa: E501
#: the rights that apply needs in the database and the login does not have
MISSING = """
SELECT w.name
FROM (VALUES (N'CREATE TABLE'), (N'CREATE PROCEDURE'), (N'CREATE FUNCTION'), (N'CREATE SCHEMA'), (N'CREATE ROLE')) AS w (name)
WHERE HAS_PERMS_BY_NAME(QUOTENAME(DB_NAME()), N'DATABASE', w.name) = 0
  AND (w.name <> N'CREATE SCHEMA' OR SCHEMA_ID(N'rowpost') IS NULL)
  AND (w.name <> N'CREATE ROLE' OR DATABASE_PRINCIPAL_ID(N'rowpost_endpoint') IS NULL);
"""  # noqa: E501


def checks(connection: pyodbc.Connection, schemas: Sequence[str]) -> Iterator[Check]:
    """Check a database in which queues in these schemas are, or are to be, deployed.

    Raises:
        pyodbc.Error: the connection was lost, or the server does not know a function of the queries.
    """
    updateability, login = connection.execute(DATABASE).fetchone()
    missing = [row[0] for row in connection.execute(MISSING).fetchall()]
    owners = {str(name): str(owner) for name, owner in connection.execute(OWNERS).fetchall()}
    try:
        check_compatibility(connection.execute(COMPATIBILITY).fetchval())
    except UnsupportedServer as error:
        yield Check("compatibility level", "bad", str(error))
    yield from describe(updateability, login, missing, owners, schemas)
    yield from describe_owner(
        bool(connection.execute(OWNER_LOGIN).fetchval()), connection.getinfo(load_pyodbc().SQL_DATABASE_NAME)
    )


def describe_owner(is_login: bool, database: str) -> Iterator[Check]:
    """Say what it means if the owner of the database is no login of the server:

    EXECUTE AS OWNER fails with 15517 or 15404.
    """
    if is_login:
        yield Check("owner of the database", "ok", "a login of this server")
        return
    found = (
        "no login of this server, as after a restore or on another replica: queue metrics and maintenance fail with "
        "error 15517"
    )
    name = database.replace("]", "]]")
    yield Check(
        "owner of the database",
        "bad",
        found,
        f"an administrator runs: ALTER AUTHORIZATION ON DATABASE::[{name}] TO [sa];",
    )


def check_compatibility(level: int | None) -> None:
    """Check a database's compatibility level; None on an engine that has none. Raises UnsupportedServer."""
    if level is not None and level < _LOWEST_LEVEL:
        raise UnsupportedServer(
            f"The database has compatibility level {level}, and rowpost needs {_LOWEST_LEVEL} or higher, for OPENJSON. "
            "Nothing was changed. An administrator runs: ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = "
            f"{_LOWEST_LEVEL};"
        )


def describe(
    updateability: str, login: str, missing: Sequence[str], owners: dict[str, str], schemas: Sequence[str]
) -> Iterator[Check]:
    """Say what the server's answers mean. `login` and the owners of schemas in `owners` are quoted."""
    if updateability == "READ_ONLY":
        advice = "name the primary in the url, and no ApplicationIntent=ReadOnly"
        yield Check("writable", "bad", "the database is read-only: a secondary replica, or set so", advice)
    else:
        yield Check("writable", "ok", "the database can be written to")
    owner = owners.get("rowpost")
    if missing:
        rights = ", ".join(missing)
        advice = f"an administrator runs: GRANT {rights} TO {login};"
        yield Check(
            "rights to deploy",
            "bad" if owner is None else "note",
            f"this login lacks {rights}, which apply needs",
            advice,
        )
    else:
        yield Check("rights to deploy", "ok", "this login may create what apply creates")
    others = [name for name in schemas if owner is not None and owners.get(name, owner) != owner]
    if others:
        found = (
            f"{owner} owns the schema rowpost, and not {', '.join(others)}: a login that may only execute procedures "
            "is refused"
        )
        advice = f"an administrator runs: ALTER AUTHORIZATION ON SCHEMA::rowpost TO {owners[others[0]]};"
        yield Check("owner of rowpost", "bad", found, advice)
