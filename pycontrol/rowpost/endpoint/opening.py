"""Open a bus outside of handlers: `with endpoint.open(…)`, or `async with endpoint.open(…)` on an event loop.

On an event loop, whatever talks to the database happens in another thread, one call at a time. A caller's
`AsyncConnection` of psycopg is not used by its own tasks meanwhile: its lock is held. A connection of asyncpg is used
on its loop, on behalf of that thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from types import TracebackType
from typing import Any

from rowpost.database.wrapped import joined_on_loop
from rowpost.handling.async_context import AsyncBus
from rowpost.handling.context import Bus
from rowpost.handling.event_loop import to_its_end

__all__ = ["Opening"]


class Opening:
    """Yields a bus in a block, once.

    Args:
        opened: returns the block of a bus on a connection. Called with a connection that does not need an event loop,
            and `queues`.
        connection: as `Endpoint.open`.
        queues: as `Endpoint.open`.
    """

    def __init__(self, opened: Callable[[Any, Any], AbstractContextManager[Bus]], connection: Any, queues: Any) -> None:
        self._opened, self._connection, self._queues = opened, connection, queues
        self._block: Any = None

    def __enter__(self) -> Bus:
        self._block = self._opened(self._connection, self._queues)
        bus: Bus = self._block.__enter__()
        return bus

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        swallowed: bool | None = self._block.__exit__(kind, error, traceback)
        return swallowed

    async def __aenter__(self) -> AsyncBus:
        self._block = self._on_loop()
        bus: AsyncBus = await self._block.__aenter__()
        return bus

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        swallowed: bool | None = await self._block.__aexit__(kind, error, traceback)
        return swallowed

    @asynccontextmanager
    async def _on_loop(self) -> AsyncIterator[AsyncBus]:
        blocking, lock, own = await joined_on_loop(self._connection)
        block = self._opened(blocking, self._queues)
        bus = AsyncBus(await _call(lock, block.__enter__), own)
        try:
            yield bus
            bus.check_awaited()
        except BaseException as error:
            if not await _call(lock, block.__exit__, type(error), error, error.__traceback__):
                raise
        else:
            await _call(lock, block.__exit__, None, None, None)


async def _call(lock: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in another thread, while the lock of a caller's connection is held, if there is one."""
    if lock is None:
        return await to_its_end(function, *arguments)
    async with lock:
        return await to_its_end(function, *arguments)
