"""Describe where a URL leads without any of its secrets, however badly it is written.

`describe_target` returns server and database as a text. What cannot be told apart from a secret is not shown: a `/` or
an `@` that is not escaped moves a part of the password to where libpq expects the host, the port or the database.
"""

from __future__ import annotations

import re
from itertools import takewhile

from rowpost.settings.odbc_keywords import odbc_parts
from rowpost.settings.yaml_node import did_you_mean

__all__ = ["HIDDEN", "database_of", "describe_target", "is_unambiguous", "unknown_parameters", "why_unreadable"]

#: what stands for a server or a database that is not shown
HIDDEN = "?"
_AMBIGUOUS = (
    "The PostgreSQL URL cannot be read, or a part of its password stands where its host, port or database is expected. "
    "It is not shown. "
    "Percent-encode the characters : / ? # [ ] @ and % in user, password and database; a ${VARIABLE} in the url is "
    "encoded for you."
)
_PASSWORD_VARIABLE = re.compile(r"password=\$\{\w+\}")
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_HOST = re.compile(r"[\w.,:/\[\]~+-]*")
_PORT = re.compile(r"[\d,]*")
_DATABASE = re.compile(r"[^@:/?#%&=]*")
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


def database_of(engine: str, url: str | None) -> str:
    """Return the database to which a URL leads; an empty text if the URL does not name it for certain.

    >>> database_of("sqlserver", "Server=sql01;Database=shop"), database_of("sqlserver", "Server=sql01")
    ('shop', '')
    """
    database = describe_target(engine, url).partition("/")[2] if url else ""
    return "" if database == HIDDEN or "${" in database else database


def is_unambiguous(url: str) -> bool:
    """Return whether no part of a PostgreSQL URL's password can stand where its host, port or database is expected."""
    return _postgresql(url) != HIDDEN


def why_unreadable(url: str) -> str:
    """Return why a PostgreSQL URL cannot be read: parameters that libpq does not know, or what might be a part of its
    password.

    >>> why_unreadable("postgresql://app:x@db01/shop?pgbouncer=true")[:66]
    "The PostgreSQL URL has the parameter 'pgbouncer', which PostgreSQL"
    """
    place, _, text = url.partition("?")
    all_names = [part.partition("=")[0] for part in text.split("&")]
    names = list(takewhile(lambda name: "password" not in name, all_names))  # what follows may be a part of a password
    if "@" in text or not all(map(_PARAMETER.fullmatch, names)) or not is_unambiguous(place):
        return _AMBIGUOUS
    return _said_of_unknown(names) or _AMBIGUOUS


def unknown_parameters(template: str) -> str:
    """Return what a PostgreSQL URL has that libpq does not know, if its password is a variable that is not replaced
    yet; else an empty text.

    In such a template a parameter behind the password is certainly none of its parts, so that it can be named.

    >>> unknown_parameters("postgresql://db01/shop?password=${PW}&schema=public")[:64]
    "The PostgreSQL URL has the parameter 'schema', which PostgreSQL'"
    >>> unknown_parameters("postgresql://db01/shop?password=se&cret=1")
    ''
    """
    parts = template.partition("?")[2].split("&")
    if "@" in template.partition("?")[2] or not any(map(_PASSWORD_VARIABLE.fullmatch, parts)):
        return ""
    safe = takewhile(lambda part: "password" not in part.partition("=")[0] or _PASSWORD_VARIABLE.fullmatch(part), parts)
    return _said_of_unknown(
        [name for name, _, _ in (part.partition("=") for part in safe) if _PARAMETER.fullmatch(name)]
    )


def _said_of_unknown(names: list[str]) -> str:
    """Return a sentence about the names that libpq does not know; empty if it knows all."""
    from psycopg.pq import Conninfo

    known = {option.keyword.decode() for option in Conninfo.get_defaults()} | {"ssl"}
    unknown = [name for name in names if name not in known]
    if not unknown:
        return ""
    several = len(unknown) > 1
    schema = " Name a schema with default_schema in the environment's file." if "schema" in unknown else ""
    return (
        f"The PostgreSQL URL has the parameter{'s' * several} {', '.join(map(repr, unknown))}, which PostgreSQL's "
        f"library does not know{did_you_mean(unknown[0], known) or '.'} Remove {'them' if several else 'it'}: other "
        f"libraries' parameters mean nothing to rowpost.{schema}"
    )


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
    try:
        for keyword, value in odbc_parts(text):
            braced = value.startswith("{")
            if keyword.lower() in parts or (not braced and not {"{", "}"}.isdisjoint(value)):
                return HIDDEN  # a password that is not in braces and has a semicolon
            parts[keyword.lower()] = value.strip("{}").strip()
    except ValueError:
        return HIDDEN
    server, database = parts.get("server", HIDDEN), parts.get("database", "")
    shown = server if _ODBC_SERVER.fullmatch(server) or server == HIDDEN else HIDDEN
    return f"{shown}/{database if _ODBC_DATABASE.fullmatch(database) else HIDDEN}".rstrip("/")
