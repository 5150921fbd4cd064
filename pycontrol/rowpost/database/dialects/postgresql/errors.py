"""What PostgreSQL says, as rowpost's errors: by SQLSTATE, else by what libpq says."""

from __future__ import annotations

import psycopg

from rowpost.database.dialects.explanations import KEYS_USED_UP, is_of_saga, missing_object, where_in, where_rights_are
from rowpost.database.dialects.postgresql.checks import READ_ONLY_REMEDY
from rowpost.database.dialects.postgresql.pooling import SHARED
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
    RowpostError,
    UnsupportedServer,
)

__all__ = ["LOGIN_REFUSED", "SESSION_LIMITS", "TRY_AGAIN", "UNAVAILABLE", "first_line", "translate", "why_limited"]

#: the server ends a session that breaks one of these settings. Without a SQLSTATE, as COMMIT alone has none, its
#: English words show it.
SESSION_LIMITS = {
    "25P03": ("idle-in-transaction timeout", "idle_in_transaction_session_timeout"),
    "25P04": ("transaction timeout", "transaction_timeout"),
}
UNAVAILABLE = {"57P01", "57P02", "57P03", "57P05", "53100", "53300", "25006", *SESSION_LIMITS}
LOGIN_REFUSED = {"28P01", "28000", "3D000"}
_OWNER_ALONE = (
    "If the environment has `roles: none`, only the login that owns rowpost works: connect with that login, or write "
    "`roles: cluster` and run rowpost apply"
)
_ADD_MEMBER = 'GRANT {role} TO "LOGIN"'
TRY_AGAIN = {"40P01", "40001", "55P03"}
_EXPLAINED: dict[str, tuple[type[RowpostError], str]] = {
    "53100": (
        DatabaseUnavailable,
        "The server has no space left: {}. Nothing was stored. An administrator adds space to the disk of the data "
        "directory or the tablespace, or removes messages of audit and error queues.",
    ),
    "2200H": (DatabaseError, f"The numbers of a table's rows are used up: {{}}. {KEYS_USED_UP}"),
}
_READ_ONLY = "25006"  # among those that are unavailable, because a failover ends it
#: what libpq says, without a SQLSTATE, if no server of the url is as target_session_attrs requires
_STANDBY = ("session is read-only", "server is in hot standby mode")
_WHY_READ_ONLY = f"It is a standby or a replica, or its default_transaction_read_only is on: {READ_ONLY_REMEDY}"
_NOT_UTF8 = (
    "The database is not encoded in UTF-8, or holds bytes that are no text. `rowpost doctor` shows its encoding, and "
    "what to do"
)
_NOT_PREPARED = {"26000", "42P05"}


def translate(error: Exception, statement: Statement | None = None) -> RowpostError:
    """Return the driver's error as one of rowpost's."""
    state = getattr(error, "sqlstate", None) or ""
    said = first_line(error)
    kind: type[RowpostError] = DatabaseError
    if state.startswith("RP") and int(state[2:]) in CATALOGUE:
        kind = CATALOGUE[int(state[2:])]
    elif state in ("42883", "3F000", "42P01") or (state == "42703" and is_of_saga(statement)):
        return _missing(state, said, statement)
    elif state == "42501":
        without_roles = f" {_OWNER_ALONE}" if statement is not None and said.endswith(" rowpost") else ""
        kind, said = PermissionDenied, f"{said}. {where_rights_are(statement, _ADD_MEMBER)}{without_roles}"
    elif state in TRY_AGAIN:
        kind = LockTimeout if state == "55P03" else Deadlock
    elif state in LOGIN_REFUSED or (not state and _is_refusal(said)):
        kind, said = LoginRefused, f"The server refused the login: {said}. Check user, password and database."
    elif state == _READ_ONLY or (not state and any(sign in said for sign in _STANDBY)):
        kind, said = DatabaseUnavailable, f"The server is read-only: {said}. {_WHY_READ_ONLY}"
    elif state in _EXPLAINED:
        kind, sentence = _EXPLAINED[state]
        said = sentence.format(said)
    elif state in _NOT_PREPARED:
        kind, said = UnsupportedServer, f"{said}. Either SQL of a handler deallocated it, or: {SHARED}"
    elif (limit := _broken_limit(state, said)) is not None:
        kind, said = DatabaseUnavailable, f"The server ended the session: {said}. {why_limited(limit)}"
    elif state in UNAVAILABLE or state.startswith("08") or (not state and isinstance(error, psycopg.OperationalError)):
        kind, said = DatabaseUnavailable, f"The database cannot be reached: {said}"
    elif state == "22003":
        kind = InvalidCount
    elif state in ("23502", "22021") or isinstance(error, psycopg.DataError):
        kind, said = InvalidMessage, f"{said}. {_NOT_UTF8}" if _is_not_utf8(state, said) else said
    return kind(said + where_in(statement))


def _is_not_utf8(state: str, said: str) -> bool:
    """Return whether the database's encoding is the cause. rowpost sends UTF-8, in which only NUL is refused by every
    database.
    """
    return state == "22P05" or (state == "22021" and "0x00" not in said)


def _broken_limit(state: str, said: str) -> str | None:
    """Return the setting because of which the server ended the session; None if it was another cause."""
    if state in SESSION_LIMITS:
        return SESSION_LIMITS[state][1]
    return next((name for words, name in SESSION_LIMITS.values() if not state and f"due to {words}" in said), None)


def why_limited(setting: str) -> str:
    """Say what a handler has to do with a setting that ends its session, and what to do."""
    return (
        f"The setting {setting} is shorter than a handler worked. `rowpost doctor` shows where it is set. Let the role "
        f"of the workers have a longer one: ALTER ROLE … SET {setting} = 0, or give the endpoint receive='lease', "
        "which holds no transaction while a handler works"
    )


def _missing(state: str, said: str, statement: Statement | None) -> RowpostError:
    if state != "3F000":
        return missing_object(statement, said, table=state == "42P01")
    if '"rowpost"' in said:
        return missing_object(None, said, table=False)
    return DatabaseError(
        f"{said}. Create the schema (CREATE SCHEMA), or correct the queue's name or default_schema in the "
        "environment's file"
    )


def _is_refusal(said: str) -> bool:
    """libpq gives no SQLSTATE for what fails while connecting."""
    return any(
        sign in said for sign in ("password authentication failed", "does not exist", "no password supplied", "pg_hba")
    )


def first_line(error: Exception) -> str:
    """Return the error's message with its hint, or the first line of what the driver says; no period at the end."""
    diagnostics = getattr(error, "diag", None)
    if diagnostics is not None and diagnostics.message_primary:
        hint = f" {diagnostics.message_hint}" if diagnostics.message_hint else ""
        return str(diagnostics.message_primary).rstrip(".") + ("." + hint if hint else "")
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")
