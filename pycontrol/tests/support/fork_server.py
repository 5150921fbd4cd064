"""Starts `rowpost` hundreds of times and imports its modules once: calls are forked from a process that has imported them.

A call is a process of its own, with its own arguments, variables, folder and standard streams; it shares nothing with the
tests but the imported code. Only the start of the interpreter and the imports are saved, which take longer than most calls.
Programs that tests interrupt, watch while they run, or that have a terminal are started as usual.

This file is also the server's program. It imports nothing of the tests, so that a call sees the paths of the real program.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["ForkServer"]


class ForkServer:
    """Runs scripts of Python. The server's process is started by the first call, and stopped by `stop`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen | None = None
        self._connection: socket.socket | None = None

    def call(self, script: Path, arguments: list[str], *, stdin: bytes, env: dict[str, str], cwd: Path, timeout: float) -> tuple[int, bytes, bytes]:
        """Run a script; return its exit code (negative: the signal that killed it), its stdout and stderr.

        Raises:
            subprocess.TimeoutExpired: it ran longer than `timeout` seconds. It is killed then.
        """
        self._start()
        request = json.dumps({"script": str(script), "arguments": arguments, "env": env, "cwd": str(cwd)}).encode()
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin)
            given.seek(0)
            ours, theirs = socket.socketpair()
            with ours, ours.makefile("rwb") as answers:
                with theirs:
                    socket.send_fds(self._connection, [b"call"], [each.fileno() for each in (theirs, given, out, err)])
                ours.settimeout(timeout)
                answers.write(request + b"\n")
                answers.flush()
                pid = int(answers.readline() or b"0")
                assert pid, f"{__file__} ended: its standard error says why"
                try:
                    code = int(answers.readline())
                except TimeoutError:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                    raise subprocess.TimeoutExpired([str(script), *arguments], timeout) from None
            return code, _written(out), _written(err)

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            quiet = subprocess.DEVNULL
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=quiet,
                stdout=quiet,
                stderr=quiet if os.isatty(2) else None,  # what is imported must not find a terminal
            )

    def stop(self) -> None:
        """Stop the server's process, if it runs."""
        if self._process is not None:
            self._connection.close()
            self._process.wait()
            self._process = None


def _written(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read()


# ------------------------------------------------------------------ in the server
def _serve(listening: socket.socket) -> None:
    """Fork a keeper for each call until the tests' process is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers
    while True:
        said, passed, *_ = socket.recv_fds(listening, 16, 4)
        if not said:
            return
        if os.fork() == 0:
            listening.close()
            _keep(*passed)
        for each in passed:
            os.close(each)


def _keep(connection: int, *streams: int) -> None:
    """Fork the call, tell its process id, wait for its end, and tell its exit code."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with socket.socket(fileno=connection) as opened, opened.makefile("rwb") as answers:
            request = json.loads(answers.readline())
            child = os.fork()
            if child == 0:
                opened.detach()
                os.close(connection)
                _become(request, streams)
            answers.write(b"%d\n" % child)
            answers.flush()
            _, status = os.waitpid(child, 0)
            answers.write(b"%d\n" % os.waitstatus_to_exitcode(status))
            answers.flush()
        code = 0
    finally:
        os._exit(code)


def _become(request: dict[str, Any], streams: tuple[int, ...]) -> None:
    """Run the script as a program of its own, and end the process."""
    import atexit
    import runpy
    import threading

    code: Any = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        added = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        sys.path[:1] = [str(Path(request["script"]).parent), *added]
        sys.argv = [request["script"], *request["arguments"]]
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
        runpy.run_path(request["script"], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        if not isinstance(code, int):
            if code is not None:
                sys.stderr.write(f"{code}\n")
            code = 0 if code is None else 1
        with suppress(BaseException):
            threading._shutdown()
            atexit._run_exitfuncs()
        with suppress(BaseException):
            sys.stdout.flush()
        with suppress(BaseException):
            sys.stderr.flush()
        os._exit(code)


def _import_program() -> None:
    from importlib import import_module

    from rowpost.cli import app

    for name in {*app._MODULES.values()} - {"spark"}:
        import_module(f"rowpost.cli.{name}")
    import psycopg

    import rowpost.database.dialects.postgresql.dialect
    import rowpost.database.embedded
    import rowpost.deploy.apply
    import rowpost.workers.supervision.supervisor

    assert psycopg and rowpost


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as inherited:
        _import_program()
        _serve(inherited)
