"""Replace environment variables in URLs: `${VARIABLE}` in a PostgreSQL URL or in an ODBC connection string.

A value is escaped for the place where it stands, so that no character of a password ends a part of the URL.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import quote

from rowpost.errors import SettingsError
from rowpost.settings.engine import engine_of
from rowpost.settings.password import SecretUrl
from rowpost.settings.target import unknown_parameters

__all__ = ["in_place", "resolve_participants"]

_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_ODBC_SPECIAL = re.compile(r"[;{}]")


def resolve_participants(*sources: Mapping[str, str]) -> dict[str, str]:
    """Participants of all sources by name, the later one's win; `${VARIABLE}` is replaced from the process environment.

    Raises:
        SettingsError: such a variable is not set, or its value cannot stand there. Or a PostgreSQL URL has a parameter
            that its library does not know.
    """
    return {
        name: url if isinstance(url, SecretUrl) else _resolve(url) for source in sources for name, url in source.items()
    }


def _resolve(url: str) -> str:
    if engine_of(url) == "postgresql" and (unknown := unknown_parameters(url)):
        raise SettingsError(f"A participant's URL cannot be read. {unknown}")

    def value(match: re.Match[str]) -> str:
        found = os.environ.get(match[1])
        if not found:
            raise SettingsError(f"A participant's URL needs the environment variable {match[1]}: export {match[1]}=...")
        return in_place(url, match, found, engine_of(url))

    return _VARIABLE.sub(value, url)


def in_place(template: str, variable: re.Match[str], value: str, engine: str) -> str:
    """Return the value of a variable, escaped for the place where it stands.

    If the variable is the whole text, its value is not escaped. In a PostgreSQL URL, a value is percent-encoded, but
    for the host with its port and for whole parameters. In an ODBC connection string, a value with special characters
    is put into braces.

    Raises:
        SettingsError: special characters stand beside other text of an ODBC value, where nothing can escape them. The
            value is not shown.
    """
    if variable[0] == template:
        return value
    if engine == "sqlserver":
        return _in_odbc(template, variable, value)
    return (
        value if _is_of_host(template, variable) or _is_whole_parameter(template, variable) else quote(value, safe="")
    )


def _is_of_host(url: str, variable: re.Match[str]) -> bool:
    """Whether a variable is in the part between user and database."""
    start = url.find("://") + 3
    end = next((place for place in range(start, len(url)) if url[place] in "/?"), len(url))
    return max(url.rfind("@", start, end) + 1, start) <= variable.start() < end


def _is_whole_parameter(url: str, variable: re.Match[str]) -> bool:
    """Whether a variable stands for names and values of parameters, such as `?${OPTIONS}`."""
    _, asked, parameters = url[: variable.start()].partition("?")
    return bool(asked) and "=" not in parameters.rpartition("&")[2]


def _in_odbc(text: str, variable: re.Match[str], value: str) -> str:
    before, after = text[: variable.start()].rstrip(), text[variable.end() :].lstrip()
    if before.endswith("={") and after.startswith("}"):
        return value.replace("}", "}}")
    if before.endswith("=") and after[:1] in ("", ";"):
        is_special = _ODBC_SPECIAL.search(value) or "=" in value or value != value.strip()
        return "{" + value.replace("}", "}}") + "}" if is_special else value
    if _ODBC_SPECIAL.search(value):
        raise SettingsError(
            f"the value of the environment variable {variable[1]} has one of the characters ; {{ }}, which end a value "
            f"of a connection string: write the variable alone, as in PWD=${{{variable[1]}}};"
        )
    return value
