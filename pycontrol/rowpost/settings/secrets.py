"""Resolve the names of environment variables in URLs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from rowpost.errors import SettingsError
from rowpost.settings.password import SecretUrl

__all__ = ["resolve_participants"]


_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")


def resolve_participants(*sources: Mapping[str, str]) -> dict[str, str]:
    """Participants of all sources by name, the later one's win; `${VARIABLE}` is replaced from the process environment.

    Raises:
        SettingsError: such a variable is not set.
    """

    def value(match: re.Match[str]) -> str:
        found = os.environ.get(match[1])
        if not found:
            raise SettingsError(f"A participant's URL needs the environment variable {match[1]}: export {match[1]}=...")
        return found

    return {name: url if isinstance(url, SecretUrl) else _VARIABLE.sub(value, url) for source in sources for name, url in source.items()}
