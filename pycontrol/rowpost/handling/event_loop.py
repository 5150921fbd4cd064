"""Run `async def` handlers as tasks on one event loop of the process.

    returned = run(place_order, message, context.for_tasks())

A message's transaction belongs to the thread that received it and that will commit it. That thread waits while the task
of the handler runs, and executes what the task hands over (`in_thread`): calls that would block the event loop. So a
connection is never used by two threads at once, and messages in other threads go on.

A stop by force, or a time limit, cancels the task (`recoverability.stopping`). A handler that blocks the event loop
for more than a second is named in a warning: every other task of the process waits for it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar, copy_context
from queue import Empty, SimpleQueue
from types import CodeType
from typing import Any, TypeVar

from rowpost.recoverability.stopping import GRACE_S, STOP, HandlerInterrupted, ProcessStop

__all__ = ["afterwards", "in_thread", "is_async", "run", "to_its_end"]

logger = logging.getLogger("rowpost")

_Result = TypeVar("_Result")
#: a block of the event loop that is warned of, and the time between two looks
BLOCKED_S, LOOK_S = 1.0, 0.25


def is_async(function: Any) -> bool:
    """Return whether a function, or the `__call__` of an object, is `async def`. Looks through `functools.partial`."""
    while isinstance(function, functools.partial):
        function = function.func
    method = getattr(type(function), "__call__", None)  # noqa: B004 -- the method itself
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method)


def run(
    function: Callable[..., Coroutine[Any, Any, _Result]],
    *arguments: Any,
    name: str,
    last: Callable[[], Coroutine[Any, Any, None]] | None = None,
    noted: Callable[..., Any] | None = None,
) -> _Result:
    """Run an `async def` function as a task, and return what it returns. The calling thread waits.

    Args:
        function: the handler.
        arguments: its arguments.
        name: names it for people.
        last: awaited in the same task when the function has returned.
        noted: the function that a warning of a blocked event loop names. None: `function`.

    Raises:
        HandlerInterrupted: the process stops by force, or the message has reached its time limit. The task has ended.
        BaseException: what the function raises.
    """
    loop = _LOOP.started()
    _LOOP.note(noted or function, name)
    return _Turn(loop).run(_whole(function, arguments, last), name)  # type: ignore[no-any-return]


async def in_thread(function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Execute a call in the thread that waits for the current task's handler; outside of handlers, in another thread.

    Raises:
        BaseException: what the call raises.
    """
    turn = _turn.get()
    if turn is None:
        return await to_its_end(function, *arguments)
    return await turn.execute(functools.partial(function, *arguments))


async def to_its_end(function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Execute a call in another thread. A cancellation takes effect when the call has ended.

    Otherwise the thread would go on to use a connection whose transaction the cancelled task rolls back meanwhile: what
    it stores then would be stored outside of that transaction.

    Raises:
        BaseException: what the call raises.
    """
    call = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        while not call.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([call])
        if not call.cancelled():
            call.exception()  # nobody else asks for it
        raise


def afterwards(function: Callable[..., Any], *arguments: Any) -> None:
    """Let the thread that waits for the current task's handler execute a call behind those that it was handed before.

    Nobody waits for it, and an error of it is dropped.
    """
    turn = _turn.get()
    if turn is not None:
        turn.put(functools.partial(function, *arguments))


class _Turn:
    """One handler's task, and the thread that waits for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: set by _begin, in the loop's thread
        self._task: asyncio.Task[Any] | None = None
        self._is_cancelled = False
        #: what the thread executes; None: the task has ended
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._ended = False

    def run(self, coroutine: Coroutine[Any, Any, _Result], name: str) -> _Result:
        stop, context = STOP.current, copy_context()
        context.run(_turn.set, self)
        stop.cancel = self._cancel
        try:
            self._loop.call_soon_threadsafe(self._begin, coroutine, name, context)
            if stop.forced:
                self._cancel()
            while (call := self._calls.get()) is not None:
                call()
        except BaseException:  # by a signal, in the main thread
            self._cancel()
            self._wait(GRACE_S, name)
            raise
        finally:
            stop.cancel = None
            self._end()
            if self._task is None or self._task.done():
                coroutine.close()  # of a task that was cancelled before it began
        return self._result(stop, name)  # type: ignore[no-any-return]

    def _begin(self, coroutine: Coroutine[Any, Any, Any], name: str, context: Any) -> None:
        self._task = self._loop.create_task(coroutine, name=name, context=context)
        self._task.add_done_callback(lambda _: self._calls.put(None))
        if self._is_cancelled:
            self._task.cancel()

    def _cancel(self) -> None:
        self._loop.call_soon_threadsafe(self._cancel_task)

    def _cancel_task(self) -> None:
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()

    def _wait(self, seconds: float, name: str) -> None:
        """Wait for the end of a task that was cancelled, and execute what it still hands over."""
        until = time.monotonic() + seconds
        try:
            while (call := self._calls.get(timeout=max(0.0, until - time.monotonic()))) is not None:
                call()
        except Empty:
            logger.error("%s does not end although it was cancelled.", name)

    def _result(self, stop: ProcessStop, name: str) -> Any:
        task = self._task
        if task is None or task.cancelled():
            if stop.forced:
                raise HandlerInterrupted("The task of this handler was cancelled.")
            raise RuntimeError(f"{name} was cancelled, and not by rowpost: something in it was awaited that "
                               "had been cancelled.")  # fmt: skip
        returned = task.result()
        if isinstance(returned, _Raised):
            raise returned.error
        return returned

    async def execute(self, call: Callable[[], _Result]) -> _Result:
        done: asyncio.Future[_Result] = self._loop.create_future()

        def settle(set_it: Callable[[Any], None], value: Any) -> None:
            if not done.done():  # the task may have been cancelled meanwhile
                set_it(value)

        def execute() -> None:
            try:
                if self._ended:
                    raise RuntimeError("The handler has ended, and nothing is executed for it any more.")
                result = call()
            except BaseException as error:  # noqa: BLE001 -- the task that has asked gets it
                self._loop.call_soon_threadsafe(settle, done.set_exception, error)
            else:
                self._loop.call_soon_threadsafe(settle, done.set_result, result)

        self._calls.put(execute)
        if self._ended:
            self._end()
        return await done

    def put(self, call: Callable[[], Any]) -> None:
        def execute() -> None:
            with suppress(BaseException):
                call()

        self._calls.put(execute)

    def _end(self) -> None:
        """Refuse what comes too late."""
        self._ended = True
        with suppress(Empty):
            while True:
                call = self._calls.get_nowait()
                if call is not None:
                    call()


class _Raised:
    """What would end the event loop if a task raised it."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


async def _whole(
    function: Callable[..., Coroutine[Any, Any, Any]],
    arguments: tuple[Any, ...],
    last: Callable[[], Coroutine[Any, Any, None]] | None,
) -> Any:
    try:
        returned = await function(*arguments)
        if last is not None:
            await last()
    except (SystemExit, KeyboardInterrupt) as error:
        return _Raised(error)
    return returned


class _Loop:
    """The event loop of the process, which runs in a thread of its own from its first use on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        #: handlers by their code
        self._names: dict[CodeType, str] = {}

    def started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._thread is None or not self._thread.is_alive():  # or in a forked process
                # psycopg cannot wait on the one that Windows prefers
                self._loop = asyncio.SelectorEventLoop() if sys.platform == "win32" else asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=(self._loop,), name="rowpost tasks", daemon=True)
                self._thread.start()
                threading.Thread(
                    target=self._watch, args=(self._loop,), name="rowpost tasks' watch", daemon=True
                ).start()
            return self._loop

    def note(self, function: Any, name: str) -> None:
        while isinstance(function, functools.partial):
            function = function.func
        code = getattr(function, "__code__", None)
        if code is not None:
            self._names[code] = name

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            answered = threading.Event()
            loop.call_soon_threadsafe(answered.set)
            if not answered.wait(BLOCKED_S):
                self._warn()
                answered.wait()  # one warning for one block
            time.sleep(LOOK_S)

    def _warn(self) -> None:
        frame = sys._current_frames().get((self._thread and self._thread.ident) or 0)
        if frame is None:
            return
        place, name = f"{frame.f_code.co_filename}:{frame.f_lineno}", "A task of a handler"
        while frame is not None:
            name = self._names.get(frame.f_code, name)
            frame = frame.f_back
        logger.warning(
            "%s blocks the event loop for more than %g s, at %s: no other async handler of this process goes on "
            "meanwhile. Await what takes long, move it to a thread with asyncio.to_thread, or make the handler a plain "
            "function.", name, BLOCKED_S, place,
        )  # fmt: skip


_turn: ContextVar[_Turn | None] = ContextVar("rowpost_turn", default=None)
_LOOP = _Loop()
