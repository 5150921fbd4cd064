"""Failed messages grouped by their cause: where they failed, with which exception, and of which type.

    found = scan(ErrorQueue(database), Filter(exception="timeout"))
    for group in found.groups:
        print(group.count, group.cause.exception_type)

A scan reads the headers of a bounded number of messages from a row version on, so that its time does not depend on the
depth of the error queue. `Scan.up_to` is where the next one begins.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from rowpost.transport.error_queue import ErrorQueue, Filter
from rowpost.transport.failed_message import FailedMessage

__all__ = ["Cause", "Group", "Scan", "cause_of", "scan"]

PAGE = 1000


@dataclass(frozen=True, slots=True)
class Cause:
    """What the messages of a group have in common. The texts are empty if the headers do not say it."""

    failed_in: str
    exception_type: str
    message_type: str

    @property
    def key(self) -> str:
        """A short name of the cause, the same in every process."""
        return hashlib.sha256("\0".join((self.failed_in, self.exception_type, self.message_type)).encode()).hexdigest()[
            :16
        ]


@dataclass(slots=True)
class Group:
    """Messages of one cause. `example` is the text of the first one's exception; times are those of the headers."""

    cause: Cause
    example: str
    first_row: int
    first_failed_at: str | None
    last_failed_at: str | None
    count: int = 0


@dataclass(slots=True)
class Scan:
    """What a scan found.

    Attributes:
        messages: the first of the matching messages, oldest first, without bodies.
        groups: all matching messages that were read, by cause; the largest group first.
        matched: how many of those that were read match.
        read: how many messages were read.
        up_to: the row version of the last one; None if there was none.
        more: whether messages after it may exist.
    """

    messages: list[FailedMessage] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    matched: int = 0
    read: int = 0
    up_to: int | None = None
    more: bool = False


def cause_of(message: FailedMessage) -> Cause:
    """Return the cause of a failed message. Messages whose headers cannot be read have one cause of their own."""
    if message.corrupt:
        return Cause("", "(headers cannot be read)", "")
    return Cause(message.failed_in or "", message.exception_type, message.message_type)


def scan(
    errors: ErrorQueue, wanted: Filter | None = None, *, key: str | None = None, after: int | None = None,
    show: int = 50, read_at_most: int = 2_000, up_to: int | None = None,
) -> Scan:  # fmt: skip
    """Read failed messages from the oldest on, and group those that match.

    Args:
        key: only messages of the cause with this key.
        after: only messages with a higher row version.
        show: keep so many of the matching messages.
        read_at_most: messages to read, rounded up to a page of 1,000.
        up_to: only messages up to this row version.

    Raises:
        QueueNotFound: the error queue does not exist.
    """
    found = Scan()
    groups: dict[Cause, Group] = {}
    at = after
    while found.read < read_at_most:
        page = errors.queue.browse(PAGE, at, 0)
        for browsed in page:
            if up_to is not None and browsed.row_version > up_to:
                break
            found.read, found.up_to = found.read + 1, browsed.row_version
            message = FailedMessage(browsed, errors.name_here)
            if wanted is None or wanted.matches(message, errors.database):
                _add(found, groups, message, key, show)
        found.more = len(page) == PAGE and found.up_to == page[-1].row_version
        if not found.more:
            break
        at = page[-1].row_version
    found.groups = sorted(groups.values(), key=lambda group: (-group.count, group.first_row))
    return found


def _add(found: Scan, groups: dict[Cause, Group], message: FailedMessage, key: str | None, show: int) -> None:
    cause = cause_of(message)
    if key is not None and cause.key != key:
        return
    found.matched += 1
    if len(found.messages) < show:
        found.messages.append(message)
    group = groups.get(cause)
    if group is None:
        at = message.failed_at_iso
        group = groups[cause] = Group(cause, message.exception_message, message.row_version, at, at)
    group.count += 1
    group.last_failed_at = message.failed_at_iso or group.last_failed_at
