"""Record the steps of real workers as events of the models `receive` and `outbox`.

Each process records its own steps, in its own file, when the server has answered. The order of the events of different
processes is not recorded: SPIN searches for an order that the model allows. A worker may end itself by SIGKILL after any of
its events, also when its handler starts.

    python -m tests.support.recorded '{...}'        # a worker, see `spawn`
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from rowpost.database.connection import Connection, connect_url
from rowpost.endpoint.function import FunctionEndpoint
from rowpost.errors import AlreadyDispatched
from rowpost.pipeline.observer import Observer
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.settings.engine import engine_of
from rowpost.settings.worker import FunctionRetries
from rowpost.wire.message import Message
from tests.support import outboxes

__all__ = ["POISON", "RETRIES", "SUPERVISOR", "Recorder", "codes", "include_file", "kinds", "read_events", "spawn"]

#: as in models/receive.pml
RETRIES, SUPERVISOR = 1, 2
POISON = b"poison"
PAUSE_S, DEADLINE_S = 0.005, 100.0
Event = tuple[str, int]


class Recorder:
    """Records the calls of this process as events, while it is entered.

    Args:
        path: the file, one line for each event.
        rows: the messages' row versions, in the order of their numbers in the model.
        die_at: end this process after so many steps; None never.
    """

    def __init__(self, path: Path, rows: Sequence[int], die_at: int | None = None) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._rows, self._left = list(rows), die_at
        self._receiving: Connection | None = None
        self._held: int | None = None
        self._original: dict[str, Callable] = {}

    def __enter__(self) -> Recorder:
        for name in ("call", "call_all", "commit", "rollback"):
            self._original[name] = getattr(Connection, name)
            setattr(Connection, name, self._recorded(self._original[name], getattr(self, f"_after_{name}")))
        return self

    def __exit__(self, *_: object) -> None:
        for name, function in self._original.items():
            setattr(Connection, name, function)
        self._file.close()

    def _recorded(self, original: Callable, after: Callable) -> Callable:
        @wraps(original)
        def method(database: Connection, *args: Any, **options: Any) -> Any:
            was_open = database.in_transaction
            try:
                result = original(database, *args, **options)
            except AlreadyDispatched:
                self.event("SENT_BEFORE")
                raise
            after(database, was_open, result, *args, **options)
            return result

        return method

    def event(self, kind: str, number: int = 0) -> None:
        """Record an event."""
        self._file.write(f"{kind} {number}\n")
        self._file.flush()
        self.step()

    def step(self) -> None:
        """Count a step, and end this process if it is the one."""
        if self._left is None:
            return
        self._left -= 1
        if self._left == 0:
            self._file.write("KILLED 0\n")
            self._file.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    # -------------------------------------------------------------- what a call of the code means
    def _after_call(
        self, database: Connection, _open: bool, rows: list, procedure: str, *args: Any, **arguments: Any
    ) -> None:
        if procedure == "receive_messages" and rows:
            self._receiving, self._held = database, self._rows.index(rows[0][1])
            self.event("RECEIVED", self._held)
        elif procedure == "receive_message" and rows:
            self._receiving, self._held = database, self._rows.index(rows[0][1])
            self.event("RECEIVED_AGAIN", self._held)
        elif procedure == "receive_message" and self._receiving is not None:  # the supervisor asks again and again
            self.event("NOT_RECEIVED", self._rows.index(arguments["row_version"]))
        elif procedure == "record_failure":
            self.event("COUNTED", self._counted())
        elif procedure == "record_handled":
            self.event("UNKNOWN")
        elif procedure == "find_handled":
            self.event("UNKNOWN" if not rows else "KNOWN_SENT" if rows[0][0] is None else "KNOWN_UNSENT")

    def _counted(self) -> int:
        return self._last if self._held is None else self._held

    #: the message that the supervisor counts for
    _last = 0

    def counts_for(self, number: int) -> None:
        """Note which message the next count is for, in a process that has received none."""
        self._last = number

    def _after_call_all(
        self,
        database: Connection,
        _open: bool,
        _rows: list,
        calls: Sequence,
        *,
        begin: Any = False,
        commit: Any = False,
    ) -> None:
        if not commit:
            return  # such as the rehearsal of an outbox, which is rolled back
        names = {each[0] for each in calls}
        for procedure, kind in (
            ("record_handled", "STORED"), ("store_operations", "STORED"), ("record_dispatch", "SENT"),
            ("settle_operations", "SETTLED"), ("forget_dispatch", "FORGOTTEN"), ("forget_failure", "MOVED"),
        ):  # fmt: skip
            if procedure in names:
                held = self._held
                self._held = None if kind in ("SENT", "MOVED") else held
                return self.event(kind, held or 0 if kind == "MOVED" else 0)
        return None

    def _after_commit(self, database: Connection, was_open: bool, _result: None) -> None:
        if database is self._receiving and was_open and self._held is not None:
            held, self._held = self._held, None
            self.event(self.committed, held if self.committed == "HANDLED" else 0)

    #: what the commit of a received message means: HANDLED, or REMOVED for a duplicate with an outbox
    committed = "HANDLED"

    def _after_rollback(self, database: Connection, was_open: bool, _result: None) -> None:
        if database is self._receiving and was_open and self._held is not None:
            if self.committed == "HANDLED":
                self.event("ROLLED_BACK", self._held)
            self._last, self._held = self._held, None


def spawn(
    model: str, url: str, queue: str, folder: Path, number: int, rows: Sequence[int], **options: Any
) -> subprocess.Popen:
    """Start a worker process that handles all messages of the queue and records its steps.

    Args:
        model: receive or outbox.
        number: of the worker in the model; its file is worker-<number> in `folder`.
        options: die_at, and for an outbox the URL `business` and `pessimistic`.
    """
    given = {
        "model": model,
        "url": url,
        "queue": queue,
        "folder": str(folder),
        "number": number,
        "rows": list(rows),
        **options,
    }
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.recorded", json.dumps(given)], env={**os.environ, "PYTHONPATH": path}
    )


class _InFlightFile(Observer):
    """Writes the in-flight message to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def starting(self, message: Message) -> None:
        self._path.write_text(json.dumps([str(message.id), message.row_version]))

    def ended(self, result: object) -> None:
        self._path.write_text("")


def main(
    model: str,
    url: str,
    queue: str,
    folder: str,
    number: int,
    rows: list[int],
    die_at: int | None = None,
    **outbox: Any,
) -> None:
    """Handle messages until the queue has none, committed or not."""
    hold = _InFlightFile(Path(folder, f"in-flight-{number}"))

    with connect_url(engine_of(url), url) as look, Recorder(Path(folder, f"worker-{number}"), rows, die_at) as recorder:

        def handle(message: Any, connection: Any) -> None:
            recorder.step()
            if message.body == POISON:
                raise ValueError("always fails")

        def waits() -> bool:
            return look.driver_connection.execute(f'SELECT count(*) FROM "{queue}"').fetchone()[0] > 0

        database = connect_url(engine_of(url), url, f"rowpost tests recorded {number}")
        if model == "outbox":
            recorder.committed = "REMOVED"
            step = {"in handler": recorder.step}
            endpoint = outboxes.endpoint_of(
                queue, outbox["business"], pessimistic=outbox["pessimistic"], step=lambda name: step.get(name, int)()
            )
            pipeline = outboxes.pipeline_of(database, endpoint)
        else:
            endpoint = FunctionEndpoint(handle, queue, retries=FunctionRetries(RETRIES + 1))
            pipeline = Pipeline(database, queue, endpoint, reconnect=database.open_second, observers=[hold])
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            if pipeline.process_one().kind is Kind.EMPTY:
                if not waits():
                    break
                time.sleep(PAUSE_S)
        pipeline.close()


# ------------------------------------------------------------------ events for SPIN
def read_events(folder: Path) -> list[list[Event]]:
    """Return the events of the workers 0 and 1 and of the supervisor, each in its order."""
    names = ("worker-0", "worker-1", f"worker-{SUPERVISOR}")
    lines = [(folder / name).read_text("utf-8").splitlines() if (folder / name).exists() else [] for name in names]
    return [[(kind, int(number)) for kind, number in map(str.split, each)] for each in lines]


def kinds(model: Path) -> dict[str, int]:
    """Return the codes of a model's kinds of events, by name."""
    text = model.read_text("utf-8").partition("/* kinds of events */")[2].partition("\n\n")[0]
    return {name: int(code) for _, name, code in map(str.split, text.strip().splitlines())}


def codes(events: Sequence[Sequence[Event]], model: Path) -> list[list[int]]:
    """Return the codes of events, as OBSERVE in models/common.pml computes them."""
    of = kinds(model)
    return [[of[kind] * 4 + number for kind, number in each] for each in events]


def include_file(events: Sequence[Sequence[Event]], model: Path) -> str:
    """Return the text that the model includes to follow the events."""
    parts = codes(events, model)
    ends = [sum(map(len, parts[: n + 1])) for n in range(len(parts))]
    flat = ", ".join(str(code) for part in parts for code in part)
    starts = ", ".join(map(str, [0, *ends[:-1]]))
    return f"byte recorded[{ends[-1]}] = {{ {flat} }};\nbyte place[3] = {{ {starts} }};\nbyte until[3] = {{ {', '.join(map(str, ends))} }};\n"


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
