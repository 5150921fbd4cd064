"""Check the keywords of an ODBC connection string.

ODBC ignores keywords that it does not know. With ADO.NET's `Initial Catalog` in place of `Database`, the login's
default database would be used, which is often master. `check_odbc` refuses such keywords by name, and strings without a
server or a database. No message repeats a value, because values may be secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rowpost.settings.yaml_node import Node

__all__ = ["check_odbc", "odbc_parts"]

#: keywords of ADO.NET, in lower case without spaces, and what ODBC calls them
_ODBC_NAME = {
    "initialcatalog": "Database", "datasource": "Server", "networkaddress": "Server",
    "userid": "UID", "user": "UID", "username": "UID", "password": "PWD", "integratedsecurity": "Trusted_Connection",
    "multipleactiveresultsets": "MARS_Connection", "applicationname": "APP", "workstationid": "WSID",
}  # fmt: skip
#: keywords that both have, whose values differ: ADO.NET's True and False are yes and no here
_YES_OR_NO = ("trustservercertificate", "encrypt", "multisubnetfailover", "trusted_connection")
_EXAMPLE = "such as Server=sql01;Database=shop;..."
_PART = re.compile(r"\s*([^=;{}]+?)\s*=\s*(\{(?:[^}]|\}\})*\}|[^;]*)\s*(?:;+|$)")


def odbc_parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield each keyword of a connection string, as it is written, with its value, which may be in braces.

    Raises:
        ValueError: the rest is no keyword with a value.
    """
    at = 0
    while text[at:].strip():
        part = _PART.match(text, at)
        if part is None:
            raise ValueError("no keyword with a value")
        yield part[1], part[2].strip()
        at = part.end()


def check_odbc(node: Node, url: str, otherwise: str = "") -> None:
    """Refuse a connection string that ODBC would read otherwise than it is meant.

    Args:
        node: the mapping that holds the string as `url`, for errors.
        url: the string, with its secrets.
        otherwise: what may stand there too, for the error if this is no such string.

    Raises:
        SettingsError: a keyword is ADO.NET's, a part is no keyword with a value, or a server or a database is missing.
    """
    try:
        parts = list(odbc_parts(url))
    except ValueError:
        raise node.error(
            "url", f"must be {otherwise}an ODBC connection string {_EXAMPLE}. A value with a semicolon stands in braces"
        ) from None
    given: dict[str, str] = {}
    for written, value in parts:
        key = written.lower()
        given.setdefault(key, value)  # ODBC takes the first one
        odbc = _ODBC_NAME.get(key.replace(" ", ""))
        if odbc is not None:
            raise node.error("url", f"{written!r} is a keyword of ADO.NET, which ODBC ignores: write {odbc}")
        squeezed = key.replace(" ", "")
        if squeezed in _YES_OR_NO and (squeezed != key or value.lower() in ("true", "false")):
            answer = {"true": "yes", "false": "no"}.get(value.lower(), "yes or no")
            raise node.error(
                "url",
                f"{written!r} is written as in ADO.NET: ODBC has {squeezed} with yes or no: write {squeezed}={answer}",
            )
    if "dsn" in given or "filedsn" in given:
        return
    if not given.get("server"):
        raise node.error("url", f"must be {otherwise}an ODBC connection string {_EXAMPLE}")
    if not given.get("database"):
        raise node.error(
            "url",
            "names no Database, so that the login's default database would be used, often master: add Database=...",
        )
