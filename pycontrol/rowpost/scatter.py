"""Scatter-gather in chunks: many requests whose answers somebody waits for, without one row that all of them change.

A saga that sends 10,000 requests and counts the answers is updated 10,000 times, and each update waits for the one before
it, or fails against it. Split into a tree, no member waits for more than a few: a root for 100 chunks, each for 100 answers.

    tree = scatter(order.lines, at_most=100)
    for chunk in tree.children:                         # the root waits for as many answers as it has children
        context.send(CheckLines(chunk.name, chunk.items), to="Checking")    # each starts a saga of its own, named so
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rowpost.errors import InvalidMessage

__all__ = ["Chunk", "scatter"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A member of the tree: a leaf has `items`, any other has `children`.

    `name` is unique in the tree and the same each time it is built of the same items: fit for a correlation value.
    """

    name: str
    items: tuple[Any, ...] = ()
    children: tuple[Chunk, ...] = ()

    @property
    def awaits(self) -> int:
        """How many answers it waits for."""
        return len(self.children) or len(self.items)

    @property
    def leaves(self) -> tuple[Chunk, ...]:
        """The members that have items, in their order."""
        return tuple(leaf for child in self.children for leaf in child.leaves) if self.children else (self,)


def scatter(items: Sequence[Any], *, at_most: int = 100, name: str = "0") -> Chunk:
    """The tree in which nobody waits for more than `at_most` answers, as flat as can be, its chunks of about one size.

    >>> tree = scatter(range(250), at_most=100)
    >>> [(chunk.name, chunk.awaits) for chunk in tree.children]
    [('0.1', 84), ('0.2', 84), ('0.3', 82)]

    Raises:
        InvalidMessage: at_most is below 2.
    """
    if at_most < 2:  # noqa: PLR2004 -- of one there is no tree
        raise InvalidMessage(f"A chunk for {at_most} answers splits nothing: give 2 or more.")
    if len(items) <= at_most:
        return Chunk(name, tuple(items))
    below = at_most
    while below * at_most < len(items):  # what one child can have below it
        below *= at_most
    count = -(-len(items) // below)
    size = -(-len(items) // count)
    parts = (tuple(items[start : start + size]) for start in range(0, len(items), size))
    return Chunk(name, children=tuple(scatter(part, at_most=at_most, name=f"{name}.{n}") for n, part in enumerate(parts, 1)))
