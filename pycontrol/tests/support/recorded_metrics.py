"""An independent reader of the bodies of metrics, written after `tests/wire/recorded/README.md`; it uses nothing of rowpost."""

from __future__ import annotations

from io import BytesIO
from typing import NamedTuple

__all__ = ["Metrics", "read_metrics"]


class Metrics(NamedTuple):
    """The contents of one body: `base` in .NET ticks, `tags` by their keys, and `values` as (ticks after the base, key, value)."""

    version: int
    base: int
    tags: dict[int, str]
    values: list[tuple[int, int, int]]

    @property
    def by_type(self) -> list[tuple[str, int]]:
        """The message type and the value of each measurement, in their order."""
        return [(self.tags[tag], value) for _, tag, value in self.values]


def read_metrics(body: bytes) -> Metrics:
    """Read a body to its last byte."""
    rest = BytesIO(body)

    def number(size: int) -> int:
        return int.from_bytes(rest.read(size), "little", signed=True)

    version, base = number(8), number(8)
    tags = {}
    for _ in range(number(4)):
        key = number(4)
        tags[key] = rest.read(number(4)).decode()
    values = [(number(4), number(4), number(8)) for _ in range(number(4))]
    assert rest.read() == b""
    return Metrics(version, base, tags, values)
