"""A message of the error queue: the failure that its headers describe, and the headers of an edit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cached_property
from uuid import UUID, uuid4

from rowpost.errors import MessageCorrupt
from rowpost.recoverability.policy import DROPPED
from rowpost.wire.headers import (
    EDIT_OF,
    ENCLOSED_MESSAGE_TYPES,
    EXCEPTION_INFO,
    FAILED_QUEUE,
    MESSAGE_ID,
    PROCESSING_ENDPOINT,
    RETRIES_TIMESTAMP,
    RETRY_UNIQUE_MESSAGE_ID,
    TIME_OF_FAILURE,
)
from rowpost.wire.message import BrowsedMessage, Headers, parse_timestamp
from rowpost.wire.message_types import first_type

__all__ = ["FailedMessage", "edited_headers"]


class FailedMessage:
    """A message of the error queue.

    If its headers cannot be read, `corrupt` gives the reason, and the other values are empty.

    Args:
        browsed: its row.
        name_here: returns the name by which the database knows the queue of an address.
    """

    def __init__(self, browsed: BrowsedMessage, name_here: Callable[[str], str] = str) -> None:
        self.browsed = browsed
        self._name_here = name_here
        self.row_version, self.id = browsed.row_version, browsed.id

    @cached_property
    def headers(self) -> Mapping[str, str | None]:
        try:
            return self.browsed.headers
        except MessageCorrupt:
            return {}

    @property
    def corrupt(self) -> str | None:
        """The reason why the headers cannot be read; None if they can."""
        try:
            _ = self.browsed.headers
        except MessageCorrupt as error:
            return str(error)
        return None

    @property
    def message_id(self) -> str:
        return self.headers.get(MESSAGE_ID) or str(self.id)

    @property
    def failed_queue(self) -> str | None:
        """The address of the queue where it failed, to which a retry sends it; None if the headers do not name it."""
        return self.headers.get(FAILED_QUEUE) or None

    @property
    def failed_in(self) -> str | None:
        """The queue where it failed, by the name that it has in this database."""
        return None if self.failed_queue is None else self._name_here(self.failed_queue)

    @property
    def failed_at_iso(self) -> str | None:
        """When the handler failed, as ISO 8601; the header's text if it is not a time, None if there is none."""
        try:
            return parse_timestamp(self.failed_at).isoformat()
        except ValueError:
            return self.failed_at or None

    @property
    def failed_at(self) -> str:
        return self.headers.get(TIME_OF_FAILURE) or ""

    @property
    def exception_type(self) -> str:
        return self.headers.get(EXCEPTION_INFO + "ExceptionType") or ""

    @property
    def exception_message(self) -> str:
        return self.headers.get(EXCEPTION_INFO + "Message") or ""

    @property
    def stack_trace(self) -> str:
        return self.headers.get(EXCEPTION_INFO + "StackTrace") or ""

    @property
    def message_type(self) -> str:
        """Full name of the most derived type, without assembly and version."""
        return first_type(self.headers.get(ENCLOSED_MESSAGE_TYPES))


def edited_headers(headers: Headers, *, original: FailedMessage) -> dict[str, str | None]:
    """Return the headers of an edit: without those of the failure, with a new message id and the original's id."""
    gone = {*DROPPED, FAILED_QUEUE, TIME_OF_FAILURE, RETRIES_TIMESTAMP}
    kept = {name: value for name, value in headers.items() if name not in gone and not name.startswith(EXCEPTION_INFO)}
    return {**kept, MESSAGE_ID: str(uuid4()), EDIT_OF: _unique_id(original)}


def _unique_id(message: FailedMessage) -> str:
    """Return the id that ServiceControl gives a failed message: a GUID computed from message id and processing
    endpoint.
    """
    known = message.headers.get(RETRY_UNIQUE_MESSAGE_ID)
    if known:
        return known
    endpoint = message.headers.get(PROCESSING_ENDPOINT) or message.failed_queue or ""
    digest = hashlib.md5((message.message_id + endpoint).encode(), usedforsecurity=False).digest()
    return str(UUID(bytes_le=digest))
