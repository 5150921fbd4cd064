"""Bounds for what a client can hold before it has signed in: connections, and the time of a request.

uvicorn limits neither the time that a request may take to arrive, nor the number of connections that wait.
`BoundedProtocol` is its protocol with these limits. If too many connections wait, one of the address that has the most
of them is closed, the oldest one first, so that a client which opens many connections displaces its own.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["MOST_WAITING", "BoundedProtocol"]

#: seconds that the head of a request may take, its body, and a client that reads no response
HEAD_S, BODY_S, WRITE_S = 10.0, 60.0, 30.0
#: connections without a request that is being answered
MOST_WAITING = 100


class BoundedProtocol(H11Protocol):
    """One connection of a client."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None
        self._phase: object = None
        self._since = 0.0
        self._writes: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Whether no request of it is being answered."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = time.monotonic()
        self._follow(h11.IDLE)
        self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._follow(self.conn.their_state)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE:  # from here on the time limit for idle connections holds
            self._follow(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._follow(None)
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writes = self._writes or self.loop.call_later(WRITE_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writes is not None:
            self._writes.cancel()
            self._writes = None

    def _follow(self, state: object) -> None:
        """Start the time limit of the head or the body when the request gets there, and stop it when the request is
        complete.
        """
        if state is self._phase:
            return
        self._phase = state
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        seconds = {h11.IDLE: HEAD_S, h11.SEND_BODY: BODY_S}.get(state)  # type: ignore[call-overload]
        if seconds is not None:
            self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _make_room(self) -> None:
        waiting = [
            each
            for each in self.connections
            if isinstance(each, BoundedProtocol) and each.waits and not each.transport.is_closing()
        ]
        if len(waiting) <= MOST_WAITING:
            return
        ((address, _),) = Counter(each.address for each in waiting).most_common(1)
        min((each for each in waiting if each.address == address), key=lambda each: each._since).transport.abort()

    @property
    def address(self) -> str:
        """The client's address without its port."""
        return self.client[0] if self.client else ""
