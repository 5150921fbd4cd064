"""Why a message is dropped: `Discard`."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Discard"]


class Discard(NamedTuple):
    """Why a message was dropped, or a handler had no use for it.

    Attributes:
        reason: in words.
        expected: this is the usual end of such a message, so that nobody has to be warned.
        elsewhere: the message is meant for another handler, so that this one says nothing about it.
    """

    reason: str
    expected: bool = False
    elsewhere: bool = False
