"""How large a batch of a stream may be: in messages, and in bytes of headers and bodies.

Row versions have gaps and messages have any size, so that only the database can say where a batch ends. It reads sizes, and no bodies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rowpost.database.connection import Connection

__all__ = ["Bounds", "shares"]

_MOST_MESSAGES = 2**31 - 1  # of find_row_version


@dataclass(frozen=True)
class Bounds:
    """What a batch may have at most. None is no bound. A message that has more bytes is a batch of its own."""

    messages: int | None = None
    bytes: int | None = None

    def may_end(self, row_versions: int) -> bool:
        """Tell whether a batch may end within so many row versions."""
        return self.bytes is not None or (self.messages is not None and row_versions > self.messages)

    def end(self, database: Connection, queue: str, above: int, upto: int) -> int:
        """Return the row version at which a batch ends that begins above another one."""
        count = min(self.messages or _MOST_MESSAGES, _MOST_MESSAGES)
        found = database.call("find_row_version", queue, above=above, upto=upto, count=count, bytes=self.bytes)[0].row_version
        return upto if found is None else found

    def shared(self, wanted: Mapping[str, int]) -> dict[str, Bounds]:
        """Share the bounds between queues with so many messages: bytes equally between those that have any."""
        messages = {} if self.messages is None else shares(self.messages, wanted)
        share = None if self.bytes is None else max(1, self.bytes // max(1, sum(count > 0 for count in wanted.values())))
        # a message may have arrived since a queue was found empty
        return {name: Bounds(None if self.messages is None else max(1, messages[name]), share) for name in wanted}


def shares(limit: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """Share a number of rows between queues: small backlogs completely, the rest equally. Each backlog gets at least one row.

    >>> shares(100, {"a": 1000, "b": 10, "c": 1000})
    {'b': 10, 'a': 45, 'c': 45}
    """
    found, left = {}, limit
    ordered = sorted(wanted, key=lambda name: wanted[name])
    for place, name in enumerate(ordered):
        found[name] = min(wanted[name], max(1, left // (len(ordered) - place)))
        left = max(0, left - found[name])
    return found
