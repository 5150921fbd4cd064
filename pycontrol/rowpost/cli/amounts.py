"""Numbers of messages in words."""

from __future__ import annotations

__all__ = ["PEEK_LIMIT", "amount", "exact_amount"]

#: where a peek stops counting
PEEK_LIMIT = 10_000


def amount(waiting: int) -> str:
    """What a peek found: counted only up to a limit.

    >>> amount(10_000), amount(1)
    ('10,000 messages or more', '1 message')
    """
    if waiting >= PEEK_LIMIT:
        return f"{PEEK_LIMIT:,} messages or more"
    return exact_amount(waiting)


def exact_amount(count: int) -> str:
    """A count."""
    return f"{count:,} message{'' if count == 1 else 's'}"
