"""The T-SQL around the calls of a transaction: how it begins and commits, and what a handler did to it and to its
session.

A handler gets the driver's connection, and pyodbc does not tell what is executed there. What a handler must not leave
behind is found by statements that travel in round trips that are made anyway:

- BEGIN keeps the transaction's number in the session's context, and COMMIT compares it. A handler that rolls back and
  begins another transaction would otherwise commit what it sent while its message is in the queue again.
- What comes before the BEGIN after a handler sets what can be set blindly, and reads the rest. `restore` sets back what
  differs.

A session keeps no more than that apart: temporary tables, cursors, the session's context and its application locks
stay, and a handler that makes them removes them.
"""

from __future__ import annotations

from typing import NamedTuple

from rowpost.database.dialects.protocol import Begin, Commit

__all__ = [
    "BEGIN",
    "CHECK_OPEN",
    "COMMIT",
    "REPLACED",
    "ROLL_BACK_REPLACED",
    "STATE",
    "SessionState",
    "clean",
    "is_whole",
    "opening",
    "restore",
]

# Most providers of linked servers want XACT_ABORT for changes within a transaction. A COMMIT ends the innermost of two:
# one that is not ours ends nothing.
# A transaction that is open already was left open by mistake: going on would commit what nobody meant to commit.
_REFUSE_NESTED = (
    "IF @@TRANCOUNT > 0 BEGIN; THROW 50000, N'rowpost: a transaction was left open on this connection; nothing is "
    "begun in it', 1; END; "
)
BEGIN: dict[Begin, str] = {
    True: f"{_REFUSE_NESTED}BEGIN TRANSACTION",
    "distributed": f"{_REFUSE_NESTED}SET XACT_ABORT ON; BEGIN DISTRIBUTED TRANSACTION",
    "commit_guarded": f"{_REFUSE_NESTED}BEGIN TRANSACTION; BEGIN TRANSACTION",
}
# a handler may have switched it on: what follows the COMMIT would begin a transaction that nobody ends
_EXPLICIT = "SET IMPLICIT_TRANSACTIONS OFF;"
COMMIT: dict[Commit, str] = {
    False: "",
    True: f"{_EXPLICIT} COMMIT TRANSACTION;",
    "commit_guarded": f"{_EXPLICIT} COMMIT TRANSACTION; COMMIT TRANSACTION;",
}

_NUMBER = "CURRENT_TRANSACTION_ID()"
_KEPT = "CAST(SESSION_CONTEXT(N'rowpost.transaction') AS bigint)"
_KEEP = (
    f"DECLARE @transaction bigint = {_NUMBER}; EXEC sys.sp_set_session_context N'rowpost.transaction', @transaction;"
)
#: after a BEGIN whose transaction stays open. Nothing says that a distributed transaction keeps its number: it is not
#: compared.
_KEEPS: dict[Begin, str] = {
    True: _KEEP,
    "distributed": "EXEC sys.sp_set_session_context N'rowpost.transaction', NULL;",
    "commit_guarded": _KEEP,
}
#: whether a handler ended the transaction and began another one
REPLACED = f"@@TRANCOUNT > 0 AND {_KEPT} <> {_NUMBER}"
ROLL_BACK_REPLACED = f"IF {REPLACED} ROLLBACK TRANSACTION;"
#: before calls of a commit. Where the transaction is over, or another one, COMMIT fails (3902): nothing is sent outside
#: of it.
CHECK_OPEN = f"{ROLL_BACK_REPLACED} IF @@TRANCOUNT = 0 COMMIT TRANSACTION;"


def is_whole(begin: Begin) -> str:
    """Return the expression that is 1 if the transaction that was begun so is still open, and no other is within it."""
    count = 2 if begin == "commit_guarded" else 1
    return f"CASE WHEN @@TRANCOUNT = {count} AND ISNULL({_KEPT}, {_NUMBER}) = {_NUMBER} THEN 1 ELSE 0 END"


class SessionState(NamedTuple):
    """What a session has set, as far as it can be read cheaply: the columns of `STATE`.

    Attributes:
        options: the bits of @@OPTIONS.
        order: how the session reads the date 01/02/03, which shows its DATEFORMAT.
    """

    options: int
    language: str
    first_day: int
    order: str
    lock_timeout: int
    database: str
    user: str


STATE = (
    "@@OPTIONS, @@LANGUAGE, @@DATEFIRST, CONVERT(char(8), CONVERT(datetime, '01/02/03'), 112), @@LOCK_TIMEOUT, "
    "DB_NAME(), USER_NAME()"
)

#: the options that are read and set back; `clean` sets IMPLICIT_TRANSACTIONS and XACT_ABORT, which BEGIN may switch on
#: after it
_OPTIONS = {
    4: "CURSOR_CLOSE_ON_COMMIT",
    8: "ANSI_WARNINGS",
    16: "ANSI_PADDING",
    32: "ANSI_NULLS",
    64: "ARITHABORT",
    128: "ARITHIGNORE",
    256: "QUOTED_IDENTIFIER",
    512: "NOCOUNT",
    1024: "ANSI_NULL_DFLT_ON",
    2048: "ANSI_NULL_DFLT_OFF",
    4096: "CONCAT_NULL_YIELDS_NULL",
    8192: "NUMERIC_ROUNDABORT",
}
_XACT_ABORT = 16384
_ORDERS = {
    "20030102": "mdy",
    "20030201": "dmy",
    "20010203": "ymd",
    "20010302": "ydm",
    "20020103": "myd",
    "20020301": "dym",
}


def clean(first: SessionState) -> str:
    """Return the statements that set what `STATE` does not show, or what neither BEGIN nor a receive may meet.

    Args:
        first: the session before any handler had it.
    """
    return (
        f"{_EXPLICIT} SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET ROWCOUNT 0; SET TEXTSIZE 2147483647; SET "
        f"DEADLOCK_PRIORITY NORMAL; SET LOCK_TIMEOUT {first.lock_timeout:d}; SET XACT_ABORT "
        f"{'ON' if first.options & _XACT_ABORT else 'OFF'};"
    )


def opening(begin: Begin, first: SessionState | None, *, reads_state: bool) -> str:
    """Return the statements that begin a transaction which stays open.

    Args:
        first: the session before any handler had it; None if it was not read.
        reads_state: the session is cleaned, if it is known, and read before the transaction begins: the first result is
            its state.
    """
    begins = f"{BEGIN[begin]}; {_KEEPS[begin]}"
    if not reads_state:
        return begins
    return f"SELECT {STATE}; {begins}" if first is None else f"{clean(first)} SELECT {STATE}; {begins}"


def restore(first: SessionState, now: SessionState) -> str:
    """Return the statements that make a session what it was. Empty if nothing differs.

    Args:
        first: the session before any handler had it.
        now: the session after one.
    """
    parts = []
    if now.user != first.user:
        parts.append("REVERT;")
    if now.database != first.database:
        parts.append(f"USE {_quoted(first.database)};")
    if (now.language, now.first_day, now.order) != (first.language, first.first_day, first.order):
        parts.append(f"SET LANGUAGE {_literal(first.language)}; SET DATEFIRST {first.first_day:d};")
        if first.order in _ORDERS:
            parts.append(f"SET DATEFORMAT {_ORDERS[first.order]};")
    changed = now.options ^ first.options
    parts += [
        f"SET {name} {'ON' if first.options & bit else 'OFF'};" for bit, name in _OPTIONS.items() if changed & bit
    ]
    return " ".join(parts)


def _quoted(name: str) -> str:
    return "[" + name.replace("]", "]]") + "]"


def _literal(text: str) -> str:
    """SET LANGUAGE takes a literal or a variable, and no name."""
    return "N'" + text.replace("'", "''") + "'"
