"""A program that takes commands as lines of JSON on stdin, and reports what happens as lines of JSON on stdout.

All other lines of stdout, and stderr, are its log. A program that ends when it should not makes every wait fail at once, with the end of
that log.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tests.support.fork_server import FORK_SERVER

__all__ = ["CommandFailed", "LineProcess", "ProcessEnded", "Report"]

Report = dict[str, Any]
START_S, WAIT_S, STOP_S = 60.0, 60.0, 60.0
#: lines of the log that an error shows
LOG_LINES = 40


class ProcessEnded(Exception):
    """The program has ended, or it never started."""


class CommandFailed(Exception):
    """The program answered a command with an error."""


class LineProcess:
    """One running program. Commands are for one thread.

    Args:
        name: what errors call it.
        command: program and arguments, or `-m`, a module and arguments, which is forked. They may hold passwords: no error shows them.
        folder: its working folder.
        variables: its environment; None for that of this process.
    """

    def __init__(
        self, name: str, command: Sequence[object], folder: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._changed = threading.Condition()
        self._reports: list[Report] = []
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._open_streams = 2
        self._answered = 0
        pipe = subprocess.PIPE
        options = {
            "stdin": pipe,
            "stdout": pipe,
            "stderr": pipe,
            "cwd": folder,
            "text": True,
            "encoding": "utf-8",
            "errors": "replace",
        }
        start = FORK_SERVER.start if command[0] == "-m" else subprocess.Popen
        self.process = start([*map(str, command)], env=variables, **options)
        for stream in (self.process.stdout, self.process.stderr):
            threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    # ------------------------------------------------------------------ what it said
    @property
    def reports(self) -> list[Report]:
        """All lines of JSON so far."""
        with self._changed:
            return list(self._reports)

    @property
    def log(self) -> str:
        """The last lines that were no reports."""
        with self._changed:
            return "\n".join(self._log)

    def handled(self, kind: str) -> list[Report]:
        """The messages of that type that its handlers reported so far."""
        return [each for each in self.reports if each.get("handled") == kind]

    # ------------------------------------------------------------------ wait
    def started(self) -> LineProcess:
        """Wait until it runs. Raises ProcessEnded if it says that it could not start."""
        self._wait(lambda: self._has("started") or self._has("failed"), "started", START_S)
        failed = self._first("failed")
        if failed is not None:
            raise ProcessEnded(f"{self.name} did not start: {failed['failed']}")
        return self

    def wait_for(self, key: str, value: object = None, *, count: int = 1, deadline: float = WAIT_S) -> list[Report]:
        """Wait until so many reports have that key, with that value if one is given. Return them.

        Raises:
            ProcessEnded: the program ended before.
            AssertionError: they did not come within the deadline, in seconds.
        """
        what = f"{count} x {key}" + ("" if value is None else f" = {value!r}")

        def found() -> list[Report]:
            return [each for each in self._reports if key in each and value in (None, each[key])]

        self._wait(lambda: len(found()) >= count, what, deadline)
        with self._changed:
            return found()

    # ------------------------------------------------------------------ tell
    def tell(self, op: str, **more: object) -> None:
        """Give a command and wait until it is done.

        Raises:
            CommandFailed: the program said why it could not.
            ProcessEnded: the program ended.
        """
        self._write({"op": op, **more})
        self._wait(lambda: len(self._answers()) > self._answered, f"the end of {op}", WAIT_S)
        with self._changed:
            answer = self._answers()[self._answered]
        self._answered += 1
        if "error" in answer:
            raise CommandFailed(f"{self.name} could not {op}: {answer['error']}")

    def send(self, kind: str, body: Mapping[str, object], **more: object) -> None:
        """Send a message of Shop.Messages: `to`, `local`, `delayMs`, `headers`, `instanceReply`, `repeat`."""
        self.tell("send", type=kind, body=body, **more)

    def publish(self, kind: str, body: Mapping[str, object]) -> None:
        """Publish an event of Shop.Messages."""
        self.tell("publish", type=kind, body=body)

    def stop(self) -> int:
        """Let it end by itself, and return its exit code. Raises ProcessEnded if it had ended before."""
        self._write({"op": "stop"})
        self._stdin().close()
        try:
            code = self.process.wait(STOP_S)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(self._with_log(f"{self.name} did not stop within {STOP_S:.0f} s")) from error
        with self._changed:
            assert self._changed.wait_for(lambda: not self._open_streams, STOP_S), (
                f"{self.name} ended, its output did not"
            )
        return code

    def kill(self) -> None:
        """End it at once if it still runs."""
        with suppress(OSError):
            self._stdin().close()
        self.process.kill()
        self.process.wait()

    # ------------------------------------------------------------------ inside
    def _stdin(self) -> IO[str]:
        assert self.process.stdin is not None
        return self.process.stdin

    def _write(self, command: Mapping[str, object]) -> None:
        try:
            self._stdin().write(json.dumps(command) + "\n")
            self._stdin().flush()
        except (OSError, ValueError) as error:
            self.process.wait(STOP_S)
            raise self._ended(f"the command {command['op']!r}") from error

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            report = _report(line)
            with self._changed:
                if report is None:
                    self._log.append(line.rstrip())
                else:
                    self._reports.append(report)
                self._changed.notify_all()
        with self._changed:
            self._open_streams -= 1
            self._changed.notify_all()

    def _wait(self, condition: Callable[[], object], what: str, deadline: float) -> None:
        """Wait for a condition over the reports, which holds the lock while it looks."""
        end = time.monotonic() + deadline
        with self._changed:
            while not condition():
                if not self._open_streams:
                    raise self._ended(what)
                left = end - time.monotonic()
                if left <= 0:
                    said = [{key: each[key] for key in list(each)[:1]} for each in self._reports]
                    raise AssertionError(
                        self._with_log(f"{self.name}: {what} did not come within {deadline:.0f} s. It reported {said}")
                    )
                self._changed.wait(left)

    def _ended(self, what: str) -> ProcessEnded:
        return ProcessEnded(
            self._with_log(f"{self.name} ended with exit code {self.process.wait(STOP_S)} before {what}")
        )

    def _with_log(self, text: str) -> str:
        return f"{text}.\nThe end of its log:\n" + "\n".join(self._log)

    def _has(self, key: str) -> bool:
        return self._first(key) is not None

    def _first(self, key: str) -> Report | None:
        return next((each for each in self._reports if key in each), None)

    def _answers(self) -> list[Report]:
        return [each for each in self._reports if "done" in each or "error" in each]


def _report(line: str) -> Report | None:
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
