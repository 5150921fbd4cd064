"""What SQL Server says, as rowpost's errors: by number, else by SQLSTATE."""

from __future__ import annotations

import re

from rowpost.database.dialects.explanations import KEYS_USED_UP, is_of_saga, missing_object, where_in, where_rights_are
from rowpost.database.dialects.protocol import Statement
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
    SettingsError,
)

__all__ = ["FIREWALL", "LOGIN_REFUSED", "PERMISSION", "TRY_AGAIN", "UNAVAILABLE", "translate"]

_NUMBER = re.compile(r"\((\d+)\) \(SQL\w+\)")
_OBJECT = re.compile(r"object name '([^']+)'")
_DRIVER_PREFIX = re.compile(r"^(\[[^\]]*\] ?)+")
_CATALOGUE_BASE = 51000
_NO_COLUMN, _NO_TABLE, _NO_PROCEDURE, _LOCK_TIMEOUT = 207, 208, 2812, 1222
#: a replica that is not the primary, or not yet (3906: the database is read-only)
_REPLICA = {976, 978, 982, 983, 3906, 4221}
#: Azure SQL: limits of sessions and workers, of a pool, and of what one session may use
_LIMITS = {10928, 10929, 10936}
_SESSION_LIMITS = {40549, 40550, 40551, 40552, 40553}
#: nothing can be stored: transaction log, filegroup, size of a database of Azure SQL
_FULL = {1105, 9002, 40544}
_FILES, _UPGRADE = 945, 18401
#: the session is another one, and does not know the statements that the driver has prepared: nothing was executed
_PREPARED = {586, 8179}
#: the connection, a shutdown (596, 6005), a failover or throttling of Azure SQL (40xxx, 42xxx, 49xxx), and all of the
#: above
UNAVAILABLE = {
    64,
    233,
    596,
    6005,
    10053,
    10054,
    10060,
    40143,
    40197,
    40501,
    40540,
    40613,
    42108,
    42109,
    49918,
    49919,
    49920,
}
UNAVAILABLE |= {*_REPLICA, *_LIMITS, *_SESSION_LIMITS, *_FULL, *_PREPARED, _FILES, _UPGRADE}
#: the firewall of Azure SQL: an address, a virtual network, or public access
FIREWALL = {40615, 40914, 47073}
#: what OpenSSL, and what Windows, says of a certificate that it does not trust; all have the SQLSTATE of an outage
_CERTIFICATE = re.compile(
    r"certificate (verify failed|chain|has expired)|self.signed certificate|target principal name is incorrect", re.I
)
LOGIN_REFUSED = {18456, 18452, 4060, 18470, 18486}
#: locks or memory that the server does not have at the moment
_SHORTAGE = {701, 1204, 8645}
TRY_AGAIN = {1205, 1222, 3960, 3961, *_SHORTAGE}
_ADD_MEMBER = "ALTER ROLE {role} ADD MEMBER [LOGIN]"
PERMISSION = {229, 230, 262, 297, 300, 916, 15151, 15404, 15517}
_NO_VALUE, _NO_PLAN, _NO_SCHEMA, _OVERFLOW = 515, 8622, 2760, 8115
_KINDS: dict[int, type[RowpostError]] = {
    **dict.fromkeys(PERMISSION, PermissionDenied),
    **dict.fromkeys(TRY_AGAIN, Deadlock),
    **dict.fromkeys(LOGIN_REFUSED, LoginRefused),
    **dict.fromkeys(UNAVAILABLE, DatabaseUnavailable),
    **dict.fromkeys(FIREWALL, SettingsError),
    _LOCK_TIMEOUT: LockTimeout,
    _NO_VALUE: InvalidMessage,
    _OVERFLOW: InvalidCount,
}
_STATES: dict[str, type[RowpostError]] = {
    "28000": LoginRefused,
    **dict.fromkeys(("08001", "08S01", "08003", "08007", "HYT00", "HYT01", "IMC06"), DatabaseUnavailable),
    **dict.fromkeys(("IM002", "01000"), SettingsError),
    "22003": InvalidCount,
}
_QUEUE_INDEX = (
    "The queue has no enabled index on RowVersion, without which a receive would read and lock the whole table: run "
    "rowpost queue check, which prints the statement"
)
_SAGA_INDEX = "The table of the saga has lost an index: run rowpost verify, which names it, and rowpost apply"
_SENTENCES: dict[type[RowpostError], str] = {
    LoginRefused: "The server refused the login: {}. Check user, password and database.",
    SettingsError: "No ODBC driver could be loaded: {}. Install rowpost[sqlserver].",
}
_UNTRUSTED = (
    "The server's certificate is not trusted here: {}. ODBC Driver 18 checks it by default (Encrypt=yes): give the "
    "server a certificate that this machine trusts, for the name in the url, or add TrustServerCertificate=yes to the "
    "url of a test server, which encrypts without checking who answers."
)
_AGAIN = "Workers connect again by themselves; run a command again after a while."
_WHAT_TO_DO: dict[int, str] = {
    **dict.fromkeys(
        _REPLICA,
        "The url must lead to the primary: name the listener of the availability group, and no "
        f"ApplicationIntent=ReadOnly. After a failover: {_AGAIN}",
    ),
    **dict.fromkeys(FIREWALL, "Let the firewall of Azure SQL admit this machine's address or network."),
    **dict.fromkeys(_LIMITS, "Run fewer workers, or choose a larger service tier: see docs/guides/azure-sql.md."),
    **dict.fromkeys(
        _SESSION_LIMITS,
        ("The server ended the session. Make the transaction smaller: fewer messages a batch (worker: batch)."),
    ),
    9002: (
        "Nothing was stored. An administrator backs the transaction log up or enlarges it: log_reuse_wait_desc in "
        "sys.databases says what keeps it from being reused."
    ),
    1105: (
        "Nothing was stored. An administrator adds space to the filegroup, or removes messages of audit and error "
        "queues."
    ),
    40544: "Nothing was stored. Enlarge the database, or remove messages of audit and error queues.",
    _FILES: "An administrator reads the server's error log: files, disk space or memory of the database are missing.",
    _UPGRADE: f"The server runs scripts of its own upgrade. {_AGAIN}",
    701: (
        "The server has too little memory at the moment: run it again. If that lasts, an administrator looks at its "
        "memory."
    ),
    8645: (
        "The server has too little memory at the moment: run it again. If that lasts, an administrator looks at its "
        "memory grants."
    ),
    1204: (
        "The server has no memory for locks at the moment: run it again. If that lasts, use smaller batches (worker: "
        "batch)."
    ),
}


def translate(error: Exception, statement: Statement | None = None) -> RowpostError:
    """Return what the server or the driver said, as one of rowpost's errors."""
    state, said = (str(a) for a in (*error.args, "", "")[:2])
    matches = list(_NUMBER.finditer(said))
    # One failure can have several records: a login to a replica is refused (4060) because it is not the primary (983).
    match = next((each for each in matches if int(each[1]) in UNAVAILABLE), matches[0] if matches else None)
    number = int(match[1]) if match else 0
    said = _DRIVER_PREFIX.sub("", _record(said, match) if match else said).strip().rstrip(".") or state
    where = where_in(statement)
    if number - _CATALOGUE_BASE in CATALOGUE:
        return CATALOGUE[number - _CATALOGUE_BASE](said + where)
    if number == _NO_SCHEMA or (
        number > 1e7 and said.startswith('schema "') and not said.endswith('rowpost" does not exist')
    ):
        return DatabaseError(
            f"{said}. Create the schema (CREATE SCHEMA), or correct the queue's name or default_schema in the "
            "environment's file"
        )
    if (number in (_NO_VALUE, _NO_COLUMN) or number > 1e7) and "recoverable" in said.casefold():
        return DatabaseError(
            f"{said}. The table's column Recoverable was added, dropped or lost its default: run rowpost apply{where}"
        )
    if (
        number in (_NO_PROCEDURE, _NO_TABLE)
        or (number == _NO_COLUMN and is_of_saga(statement))
        or (number > 1e7 and "does not exist" in said)
    ):
        return _missing(number, said, statement)
    kind = _KINDS.get(number) or _kind_of_state(state, number, said)
    if number == _OVERFLOW and "IDENTITY" in said:  # no number of the caller's
        kind, said = DatabaseError, f"The numbers of a table's rows are used up: {said}. {KEYS_USED_UP}"
    return kind(_explained(kind, number, said, statement) + where)


def _kind_of_state(state: str, number: int, said: str) -> type[RowpostError]:
    """Return the class of an error whose number has none: an engine may use other numbers for the same words."""
    if "permission denied" in said:
        return PermissionDenied
    if "lock timeout" in said:
        return LockTimeout
    if _CERTIFICATE.search(said):
        return SettingsError
    if number and state in ("IM002", "01000"):
        return DatabaseError
    return _STATES.get(state, DatabaseError)


def _explained(kind: type[RowpostError], number: int, said: str, statement: Statement | None) -> str:
    """Return what the server said, and what to do."""
    advice = _WHAT_TO_DO.get(number)
    if kind is DatabaseUnavailable:
        return f"The database cannot be used at the moment: {said}. {advice or _AGAIN}"
    if advice or kind is PermissionDenied:
        return f"{said}. {advice or where_rights_are(statement, _ADD_MEMBER)}"
    if kind is SettingsError and _CERTIFICATE.search(said):
        return _UNTRUSTED.format(said)
    if number == _NO_PLAN:
        lost = _SAGA_INDEX if is_of_saga(statement) else _QUEUE_INDEX
        return f"{lost} ({said})"
    return _SENTENCES.get(kind, "{}").replace("{}", said)


def _record(said: str, match: re.Match[str]) -> str:
    """Return the text of the record that ends with this number: a driver joins several with a semicolon."""
    _, separator, last = said[: match.start()].rpartition("; [")
    return f"[{last}" if separator else last


def _missing(number: int, said: str, statement: Statement | None) -> RowpostError:
    lost = _OBJECT.search(said) if number == _NO_TABLE else None
    if statement is None and lost and not lost[1].casefold().startswith("rowpost."):  # of one of several calls
        return QueueNotFound(f"The table of a queue is gone: {said}. Run: rowpost queue check")
    return missing_object(statement, said, table=number == _NO_TABLE)
