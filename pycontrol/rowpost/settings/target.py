"""Describe where a URL leads without any of its secrets, however badly it is written.

`describe_target` returns server and database as a text. What cannot be told apart from a secret is not shown: a `/` or an `@` that
is not escaped moves a part of the password to where libpq expects the host, the port or the database.
"""

from __future__ import annotations

import re

__all__ = ["HIDDEN", "describe_target", "is_unambiguous"]

#: what stands for a server or a database that is not shown
HIDDEN = "?"
_HOST = re.compile(r"[\w.,:/\[\]~+-]*")
_PORT = re.compile(r"[\d,]*")
_DATABASE = re.compile(r"[^@:/?#%&=]*")
_ODBC_PART = re.compile(r"\s*([^=;{}]+?)\s*=\s*(\{(?:[^}]|\}\})*\}|[^;{}]*)\s*(?:;+|$)")
_ODBC_SERVER = re.compile(r"[\w.,:\\/-]*")
_ODBC_DATABASE = re.compile(r"[^@;={}]*")


def describe_target(engine: str, url: str) -> str:
    r"""Return server and database of a URL, or `?` for what could be a part of a secret.

    >>> describe_target("postgresql", "postgresql://app:se#cret@db01:5432/shop")
    'db01:5432/shop'
    >>> describe_target("postgresql", "postgresql://app:se/cret@db01:5432/shop")
    '?'
    >>> describe_target("sqlserver", "Server=sql01;PWD={a;Database=secret};Database=shop")
    'sql01/shop'
    """
    return _postgresql(url) if engine == "postgresql" else _sqlserver(url)


def is_unambiguous(url: str) -> bool:
    """Return whether no part of a PostgreSQL URL's password can stand where its host, port or database is expected."""
    return _postgresql(url) != HIDDEN


def _postgresql(url: str) -> str:
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = conninfo_to_dict(url)
    except ProgrammingError:
        return HIDDEN
    host, port, database = (str(parts.get(key) or "") for key in ("host", "port", "dbname"))
    unescaped = not _DATABASE.fullmatch(database) and database in url
    if unescaped or not (_HOST.fullmatch(host) and _PORT.fullmatch(port)):
        return HIDDEN
    server = "localhost" if not host or host.startswith("/") else host
    return f"{server}{':' if port else ''}{port}/{database}".rstrip("/")


def _sqlserver(text: str) -> str:
    parts: dict[str, str] = {}
    at = 0
    while at < len(text):
        part = _ODBC_PART.match(text, at)
        key = part[1].lower() if part else ""
        if part is None or key in parts:  # a password that is not in braces and has a semicolon
            return HIDDEN
        parts[key] = part[2].strip("{}").strip()
        at = part.end()
    server, database = parts.get("server", HIDDEN), parts.get("database", "")
    shown = server if _ODBC_SERVER.fullmatch(server) or server == HIDDEN else HIDDEN
    return f"{shown}/{database if _ODBC_DATABASE.fullmatch(database) else HIDDEN}".rstrip("/")
