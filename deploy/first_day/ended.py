"""How a step ends that does not pass."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Ended", "Failed", "NotPossible", "ProvedNothing"]


class Ended(Exception):
    """A step has ended, for a reason and with what was seen."""

    def __init__(self, reason: str, seen: Iterable[str] = ()) -> None:
        super().__init__(reason)
        self.reason, self.seen = reason, tuple(seen)


class Failed(Ended):
    """The server did not do what rowpost needs."""


class NotPossible(Ended):
    """The step cannot be run on this server or with these rights; this says nothing about rowpost."""


class ProvedNothing(Ended):
    """The step ran without an error, but in circumstances in which it would also pass on a server that does not do what rowpost needs."""
