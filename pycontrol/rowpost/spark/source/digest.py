"""Count messages and compute a digest of them, so that a job that runs again can be compared with what it sent.

A digest has 64 hexadecimal digits. The first 32 are a sum over the messages: they do not depend on order or partitions,
and decide whether two runs have the same messages. The last 32 depend on the order too.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from struct import pack

__all__ = ["MessageTally", "same_messages", "total"]

_SIZE = 16
_DIGITS = 2 * _SIZE
_MODULUS = 2 ** (8 * _SIZE)
_NULL = -1


class MessageTally:
    """Number and digest of messages. Each message counts with its id, headers and body, and with the length of each.

    If the rows name their destinations, a message counts with its queue too, and `queues` has all of them.
    """

    def __init__(self) -> None:
        self.messages, self._sum, self._sequence = 0, 0, blake2b(digest_size=_SIZE)
        self.queues: set[str] = set()

    def add(self, id: str | None, headers: str, body: bytes | None, queue: str | None = None) -> None:
        """Add one message."""
        identity, text = (id or "").encode(), headers.encode()
        lengths = pack(">qqq", _NULL if id is None else len(identity), len(text), _NULL if body is None else len(body))
        hashed = blake2b(lengths + identity + text, digest_size=_SIZE)
        if queue is not None:
            self.queues.add(queue)
            hashed.update(pack(">q", len(queue.encode())) + queue.encode())
        hashed.update(body or b"")
        digest = hashed.digest()
        self.messages += 1
        self._sum = (self._sum + int.from_bytes(digest, "big")) % _MODULUS
        self._sequence.update(digest)

    @property
    def digest(self) -> str:
        """The digest as 64 hexadecimal digits."""
        return f"{self._sum:0{_DIGITS}x}{self._sequence.hexdigest()}"


def total(digests: Iterable[str]) -> str:
    """Return the digest of the messages of several parts, in the order of the parts."""
    added, sequence = 0, blake2b(digest_size=_SIZE)
    for digest in digests:
        added = (added + int(digest[:_DIGITS], 16)) % _MODULUS
        sequence.update(bytes.fromhex(digest))
    return f"{added:0{_DIGITS}x}{sequence.hexdigest()}"


def same_messages(one: tuple[int | None, str | None], other: tuple[int, str]) -> bool:
    """Tell whether two numbers and digests are of the same messages, in whatever order.

    Spark keeps no order across a shuffle, so that the same task, run again, may have its rows in another order.
    """
    return one[0] == other[0] and (one[1] or "")[:_DIGITS] == other[1][:_DIGITS]
