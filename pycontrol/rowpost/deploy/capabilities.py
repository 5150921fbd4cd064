"""What an engine supports of what depends on its kind or version: shown by `rowpost version`."""

from __future__ import annotations

import re

__all__ = ["capabilities"]

_SEQUENTIAL_KEYS = 15  # SQL Server 2019
_MAINTAIN = 17  # PostgreSQL
_ALL = (
    "receivers step over rows that others hold",
    "rights on procedures alone",
    "figures of depth, size and counters",
)


def capabilities(engine: str, version: str) -> dict[str, bool]:
    """Each feature, and whether an engine of that version has it. `version` is get_version's, with the number in it.

    >>> [name for name, has in capabilities("postgresql", "PostgreSQL 15.4").items() if not has]
    ['operators may VACUUM']
    """
    found = re.search(r"\d+", version)
    major = int(found[0]) if found else 0
    features = dict.fromkeys(_ALL, True)
    if engine == "postgresql":
        return {**features, "operators may VACUUM": major >= _MAINTAIN}
    return {
        **features,
        "maintenance from T-SQL": True,
        "optimized for sequential keys (2019)": major >= _SEQUENTIAL_KEYS,
    }
