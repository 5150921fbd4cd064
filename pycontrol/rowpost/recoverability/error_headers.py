"""Let an endpoint change the headers of its messages in the error queue: `ErrorHeaders`, and one that masks secrets."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping

from rowpost.wire.headers import EXCEPTION_INFO
from rowpost.wire.message import encode_headers

__all__ = ["ErrorHeaders", "changed", "without_secrets"]

logger = logging.getLogger("rowpost")

#: gets the headers of a copy for the error queue and the error; returns the headers that are stored
ErrorHeaders = Callable[[dict[str, str | None], BaseException], Mapping[str, str | None]]


def without_secrets(pattern: str, mask: str = "***") -> ErrorHeaders:
    """Return a function for `error_headers=` that replaces what a regular expression matches in the headers
    `ExceptionInfo.*`, such as the text of the error and the stack trace.

    >>> without_secrets("(?<=password=)[^ ]+")({"NServiceBus.ExceptionInfo.Message": "password=17 refused"}, OSError())
    {'NServiceBus.ExceptionInfo.Message': 'password=*** refused'}
    """
    secret = re.compile(pattern)

    def change(headers: dict[str, str | None], _: BaseException) -> dict[str, str | None]:
        return {
            name: secret.sub(mask, value) if value and name.startswith(EXCEPTION_INFO) else value
            for name, value in headers.items()
        }

    return change


def changed(change: ErrorHeaders, headers: dict[str, str | None], error: BaseException) -> dict[str, str | None]:
    """Return the headers that a user's function returns; the same headers, with a warning, if it fails."""
    try:
        found = dict(change(dict(headers), error))
        encode_headers(found)
    except Exception as trouble:  # noqa: BLE001 a user's function must not prevent the move to the error queue
        logger.warning("error_headers failed with %r. A message moves to the error queue without its changes.", trouble)
        return headers
    return found
