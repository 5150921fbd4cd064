"""What SQL Server says, as rowpost's errors: by number, else by SQLSTATE."""

from __future__ import annotations

import re

from rowpost.database.dialects.protocol import Statement, saga_missing, where_rights_are
from rowpost.errors import (
    CATALOGUE,
    DatabaseError,
    DatabaseUnavailable,
    Deadlock,
    InvalidCount,
    InvalidMessage,
    LockTimeout,
    LoginRefused,
    PermissionDenied,
    QueueNotFound,
    RowpostError,
    SagaNotDeployed,
    SchemaMissing,
    SettingsError,
)

__all__ = ["LOGIN_REFUSED", "PERMISSION", "TRY_AGAIN", "UNAVAILABLE", "translate"]

_NUMBER = re.compile(r"\((\d+)\) \(SQL\w+\)")
_DRIVER_PREFIX = re.compile(r"^(\[[^\]]*\] ?)+")
_CATALOGUE_BASE = 51000
_NO_COLUMN, _LOCK_TIMEOUT = 207, 1222
#: the connection, a failover (978, 983, 3906: an availability group's replica; 40xxx, 42xxx, 49xxx: Azure SQL), its limits
UNAVAILABLE = {64, 233, 978, 983, 3906, 10053, 10054, 10060, 10928, 10929, 40143, 40197, 40501, 40540, 40613, 42108, 42109}
UNAVAILABLE |= {49918, 49919, 49920}
LOGIN_REFUSED = {18456, 18452, 4060, 18470, 18486}
TRY_AGAIN = {1205, 1222, 3960, 3961}
_ADD_MEMBER = "ALTER ROLE {role} ADD MEMBER [LOGIN]"
PERMISSION = {229, 230, 262, 297, 300, 916}


def translate(error: Exception, statement: Statement | None = None) -> RowpostError:
    """What the server or the driver said, as one of rowpost's errors."""
    state, said = (str(a) for a in (*error.args, "", "")[:2])
    match = _NUMBER.search(said)
    number = int(match[1]) if match else 0
    said = _DRIVER_PREFIX.sub("", said[: match.start()] if match else said).strip().rstrip(".") or state
    where = f" ({statement.procedure.scope} {statement.queue!r})" if statement and statement.queue else ""
    kind: type[RowpostError] = DatabaseError
    if number - _CATALOGUE_BASE in CATALOGUE:
        kind = CATALOGUE[number - _CATALOGUE_BASE]
    elif number in (2812, 208) or (number == _NO_COLUMN and _of_saga(statement)) or (number > 1e7 and "does not exist" in said):
        return _missing(number, said, statement)
    elif number in PERMISSION or "permission denied" in said:
        kind, said = PermissionDenied, f"{said}. {where_rights_are(statement, _ADD_MEMBER)}"
    elif number == _LOCK_TIMEOUT or "lock timeout" in said:  # an engine may use another number for it
        kind = LockTimeout
    elif number in TRY_AGAIN:
        kind = Deadlock
    elif number in LOGIN_REFUSED or state == "28000":
        kind, said = LoginRefused, f"The server refused the login: {said}. Check user, password and database."
    elif number in UNAVAILABLE or state in ("08001", "08S01", "08003", "08007", "HYT00", "HYT01", "IMC06"):
        kind, said = DatabaseUnavailable, f"The database cannot be reached: {said}"
    elif state in ("IM002", "01000") and not number:
        kind, said = SettingsError, f"No ODBC driver could be loaded: {said}. Install rowpost[sqlserver]."
    elif number == 8115 or state == "22003":
        kind = InvalidCount
    elif number == 515 and "Recoverable" in said:
        said = f"{said}. The column Recoverable has lost its default: run rowpost queue check"
    elif number == 515:
        kind = InvalidMessage
    elif number == 8622:
        said = f"The queue has lost its index on RowVersion: run rowpost queue check ({said})"
    return kind(said + where)


def _missing(number: int, said: str, statement: Statement | None) -> RowpostError:
    if statement is None or statement.queue is None:
        return SchemaMissing(f"rowpost is not deployed in this database, or is older than this program: {said}. Run: rowpost apply")
    if _of_saga(statement):
        return SagaNotDeployed(saga_missing(statement, said))
    if number == 208:
        return QueueNotFound(f"The table of the queue {statement.queue!r} is gone: {said}. Run: rowpost queue check")
    return QueueNotFound(
        f"No queue named {statement.queue!r} in this database. rowpost queue list shows those that are; "
        "rowpost queue create makes one."
    )


def _of_saga(statement: Statement | None) -> bool:
    return statement is not None and statement.procedure.scope == "saga"
