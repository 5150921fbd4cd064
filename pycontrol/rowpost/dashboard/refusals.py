"""Refused tokens: a line in the log and a delay, both bounded, so that many wrong tokens fill neither the log nor the
server.
"""

from __future__ import annotations

import asyncio
import logging
import time

__all__ = ["Refusals"]

#: seconds before a wrong token is answered, and between two lines of the log
DELAY_S, LINE_S = 0.5, 10.0
#: answers that are delayed at the same time; further ones are refused at once
MOST_DELAYED = 20
_log = logging.getLogger("rowpost.dashboard")


class Refusals:
    """Counts wrong tokens. Used by the event loop's thread only. The tokens themselves are never logged."""

    def __init__(self) -> None:
        self._delayed = self._untold = 0
        self._told_at = float("-inf")

    async def refuse(self, address: str) -> bool:
        """Log the refusal of a token that came from an address, and delay the answer.

        Return False if too many are delayed already.
        """
        self._tell(address)
        if self._delayed >= MOST_DELAYED:
            return False
        self._delayed += 1
        try:
            await asyncio.sleep(DELAY_S)
        finally:
            self._delayed -= 1
        return True

    def _tell(self, address: str) -> None:
        now = time.monotonic()
        if now - self._told_at < LINE_S:
            self._untold += 1
            return
        more = f", and {self._untold} others since the last such line" if self._untold else ""
        _log.warning("a wrong token was refused; it came from %s%s", address, more)
        self._told_at, self._untold = now, 0
