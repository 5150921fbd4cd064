"""What the environment's `compat` switches: which generation of the NServiceBus transport its other endpoints run.

Every generation reads what rowpost writes, whatever is set here; the switch only adds what an older one needs besides,
or behaves as it did:

    versions    strategy    CorrelationId and ReplyToAddress   index on the row version of new tables
    v1          fixed       filled                             clustered
    v2          adaptive    filled                             clustered
    v3 to v5    peek        filled                             clustered
    v6          peek        filled                             nonclustered, over a heap
    v7 to v9    peek        left NULL                          nonclustered, over a heap

- strategy: how a queue's workers are told to come and go, unless the queue's worker says otherwise. `fixed` keeps its
  limit of pollers, `adaptive` counts hits and misses, `peek` looks with one monitor.
- The two columns exist on SQL Server alone, and repeat headers; versions 1 and 2 read the columns.
- The index counts where `compat` is written down; without it new tables are clustered. A queue's own
  `clustered: true|false` wins. Tables that exist stay as they are.

Not switched, on purpose: Headers is always nvarchar (varchar, as up to 3.1.0, loses characters); the index on Expires
is always filtered, which older versions do not notice; a peek never counts a whole queue, and never reads without
locks; a peek delay under 100 ms is always refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["DEFAULT", "VERSIONS", "Compat", "StrategyName", "compat_of"]

#: how workers are started and stopped
StrategyName = Literal["adaptive", "fixed", "peek"]


@dataclass(frozen=True, slots=True)
class Compat:
    """The switches of one generation."""

    version: str
    strategy: StrategyName
    legacy_columns: bool
    clustered: bool


_ALL = (
    Compat("v1", "fixed", legacy_columns=True, clustered=True),
    Compat("v2", "adaptive", legacy_columns=True, clustered=True),
    *(Compat(f"v{number}", "peek", legacy_columns=True, clustered=True) for number in (3, 4, 5)),
    Compat("v6", "peek", legacy_columns=True, clustered=False),
    *(Compat(f"v{number}", "peek", legacy_columns=False, clustered=False) for number in (7, 8, 9)),
)
_BY_VERSION = {compat.version: compat for compat in _ALL}

VERSIONS = tuple(_BY_VERSION)
DEFAULT = "v9"


def compat_of(version: str) -> Compat:
    """Return the switches of a version that the settings have checked.

    >>> compat_of("v2").strategy, compat_of("v9").legacy_columns
    ('adaptive', False)
    """
    return _BY_VERSION[version]
