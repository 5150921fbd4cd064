"""Tables of queues as NServiceBus's installers make them, and made them: data of the tests, not of rowpost's own scripts.

    made = TABLES[engine]["as installed"]
    for statement in made.statements(dialect, "dbo", "Net.Sales"): ...

`{table}`, `{delayed}` and `{index}` stand for quoted names. The columns are those of the transports' installers: SQL Server
from version 2 on, PostgreSQL from version 8.1 on.
"""

from dataclasses import dataclass

from rowpost.database.dialects.protocol import Dialect

__all__ = ["TABLES", "NServiceBusTable"]


@dataclass(frozen=True)
class NServiceBusTable:
    """The statements that make one queue's table, and those of its table of delayed messages, if it has one."""

    table: tuple[str, ...]
    delayed: tuple[str, ...] = ()

    def statements(self, dialect: Dialect, schema: str, name: str) -> list[str]:
        """Return the statements for a queue of this name."""
        names = {
            "{table}": f"{dialect.quote(schema)}.{dialect.quote(name)}",
            "{delayed}": f"{dialect.quote(schema)}.{dialect.quote(f'{name}.Delayed')}",
            "{index}": dialect.quote(f"{name}.Delayed_Due"),
        }
        found = []
        for statement in (*self.table, *self.delayed):
            for placeholder, value in names.items():
                statement = statement.replace(placeholder, value)
            found.append(statement)
        return found


_ROW_VERSION_INDEX = "CREATE NONCLUSTERED INDEX Index_RowVersion ON {table} (RowVersion ASC)"
_EXPIRES_INDEX = (
    "CREATE NONCLUSTERED INDEX Index_Expires ON {table} (Expires) INCLUDE (Id, RowVersion) WHERE Expires IS NOT NULL"
)
_SQLSERVER_DELAYED = (
    "CREATE TABLE {delayed} (Headers nvarchar(max) NOT NULL, Body varbinary(max), Due datetime NOT NULL,"
    " RowVersion bigint IDENTITY(1,1) NOT NULL)",
    "CREATE NONCLUSTERED INDEX Index_Due ON {delayed} (Due)",
)


def _on_sqlserver(*columns: str, index: str = _ROW_VERSION_INDEX) -> tuple[str, ...]:
    return (f"CREATE TABLE {{table}} ({', '.join(columns)})", index, _EXPIRES_INDEX)


_ID, _CORRELATION, _REPLY_TO = (
    "Id uniqueidentifier NOT NULL",
    "CorrelationId varchar(255)",
    "ReplyToAddress varchar(255)",
)
_RECOVERABLE, _SQLSERVER_EXPIRES = "Recoverable bit NOT NULL", "Expires datetime"
_HEADERS, _BODY = "Headers nvarchar(max) NOT NULL", "Body varbinary(max)"
_ROW_VERSION = "RowVersion bigint IDENTITY(1,1) NOT NULL"
_INSTALLED = (_ID, _CORRELATION, _REPLY_TO, _RECOVERABLE, _SQLSERVER_EXPIRES, _HEADERS, _BODY, _ROW_VERSION)
_SHRUNK = tuple(column for column in _INSTALLED if column is not _RECOVERABLE)
_BODY_STRING = "ALTER TABLE {table} ADD BodyString AS CAST(Body AS nvarchar(max))"

_POSTGRESQL = (
    "CREATE TABLE {table} (Id uuid NOT NULL PRIMARY KEY, Expires timestamp, Headers text NOT NULL, Body bytea,"
    " Seq serial NOT NULL UNIQUE)"
)
_POSTGRESQL_DELAYED = (
    "CREATE TABLE {delayed} (Id uuid NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY, Headers text NOT NULL, Body bytea,"
    " Due timestamptz NOT NULL) WITH (fillfactor=100)",
    "CREATE INDEX {index} ON {delayed} (Due)",
)

#: by engine, then by what is particular about a table
TABLES: dict[str, dict[str, NServiceBusTable]] = {
    "sqlserver": {
        "as installed": NServiceBusTable(_on_sqlserver(*_INSTALLED), _SQLSERVER_DELAYED),
        "without delayed table": NServiceBusTable(_on_sqlserver(*_INSTALLED)),
        "without Recoverable": NServiceBusTable(_on_sqlserver(*_SHRUNK), _SQLSERVER_DELAYED),
        "with BodyString": NServiceBusTable((*_on_sqlserver(*_INSTALLED), _BODY_STRING), _SQLSERVER_DELAYED),
        "without index on Expires": NServiceBusTable(_on_sqlserver(*_INSTALLED)[:2]),
        "with a clustered index": NServiceBusTable(
            _on_sqlserver(*_INSTALLED, index="CREATE CLUSTERED INDEX Index_RowVersion ON {table} (RowVersion ASC)")
        ),
        "with columns in another order": NServiceBusTable(_on_sqlserver(*reversed(_INSTALLED)), _SQLSERVER_DELAYED),
        "with a nullable Recoverable": NServiceBusTable(_on_sqlserver(*_SHRUNK, "Recoverable bit NULL")),
    },
    "postgresql": {
        "as installed": NServiceBusTable((_POSTGRESQL,), _POSTGRESQL_DELAYED),
        "without delayed table": NServiceBusTable((_POSTGRESQL,)),
        "with BodyString": NServiceBusTable(
            (
                _POSTGRESQL,
                "ALTER TABLE {table} ADD BodyString text GENERATED ALWAYS AS (encode(Body, 'escape')) STORED",
            ),
            _POSTGRESQL_DELAYED,
        ),
        "with columns in another order": NServiceBusTable(
            (
                "CREATE TABLE {table} (Seq serial NOT NULL UNIQUE, Body bytea, Headers text NOT NULL, Expires timestamp,"
                " Id uuid NOT NULL PRIMARY KEY)",
            )
        ),
        "with a wide Seq": NServiceBusTable((_POSTGRESQL.replace("serial", "bigserial"),), _POSTGRESQL_DELAYED),
    },
}
