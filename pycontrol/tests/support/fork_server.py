"""Starts the programs of the tests and imports their modules once: they are forked from a process that has imported them.

A program is a process of its own, with its own arguments, variables, folder and standard streams; it shares nothing with the tests but the
imported code. Only the start of the interpreter and the imports are saved, which take longer than most programs do. Where the start is what
is tested, a program is started as usual.

There are two servers: `FORK_SERVER` has imported `rowpost`, and that of `serving` what Spark's Python processes import. The tests' Spark is
told its socket by a variable, and spark/start/sitecustomize.py sends it what Spark has started.

This file is also the servers' program. It imports nothing of the tests, so that a program sees the paths of the real one.
"""

from __future__ import annotations

import gc
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["FORK_SERVER", "SOCKET", "ForkServer", "Forked", "serving"]

#: the variable that names the socket of `serving`
SOCKET = "ROWPOST_TEST_SPARK_PROCESSES"
_MOST_BYTES = 1 << 20


class ForkServer:
    """Forks programs. The server's process is started by the first one, and stopped by `stop`.

    Args:
        modules: what the server imports, and what their lists PRELOADED name; "rowpost" stands for all that the command line imports.
    """

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._process: subprocess.Popen | None = None
        self._folder: tempfile.TemporaryDirectory | None = None

    @property
    def path(self) -> str:
        """The socket of the server, which runs then."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        return f"{self._folder.name}/socket"

    def start(self, command: list[object], **options: Any) -> Forked:
        """Start a program: `[script, …]`, `["-m", module, …]` or `["-c", code, …]`. Options as for `subprocess.Popen`."""
        return Forked(self.path, [*map(str, command)], **options)

    def call(self, command: list[object], *, stdin: bytes, timeout: float, **options: Any) -> tuple[int, bytes, bytes]:
        """Run a program; return its exit code (negative: the signal that killed it), its stdout and stderr.

        Raises:
            subprocess.TimeoutExpired: it ran longer than `timeout` seconds. It is killed then.
        """
        pipe = subprocess.PIPE
        process = self.start(command, stdin=pipe, stdout=pipe, stderr=pipe, **options)
        try:
            out, err = process.communicate(stdin, timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return process.returncode, out, err

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(
            prefix="rowpost-"
        )  # short: the path of a socket has room for a hundred characters
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"{self._folder.name}/socket")
            listening.listen(64)
            quiet = subprocess.DEVNULL
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(listening.fileno()), *self._modules],
                env={
                    **os.environ,
                    "OPENBLAS_NUM_THREADS": "1",
                },  # numpy starts no threads then: a process with threads must not fork
                pass_fds=[listening.fileno()],
                stdin=subprocess.PIPE,
                stdout=quiet,
                stderr=quiet if os.isatty(2) else None,  # what is imported must not find a terminal
            )

    def stop(self) -> None:
        """Stop the server's process, if it runs."""
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait()
            self._process = None
            self._folder.cleanup()


class Forked(subprocess.Popen):
    """A program that a fork server has started. It is not a child of this process: the server says how it ended."""

    def __init__(self, path: str, command: list[str], **options: Any) -> None:
        self._answers = socket.socket(socket.AF_UNIX)
        self._answers.connect(path)
        super().__init__(command, **options)

    def _execute_child(self, args: list[str], *options: Any) -> None:
        """Let the server fork the program. The arguments are those of subprocess.Popen's own method."""
        cwd, env, pipes = options[4], options[5], options[9:15]
        streams = [number if each == -1 else each for number, each in enumerate((pipes[0], pipes[3], pipes[5]))]
        request = {
            "command": args,
            "env": dict(os.environ if env is None else env),
            "cwd": str(cwd or os.getcwd()),
            "group": options[20],
        }
        said = json.dumps(request).encode() + b"\n"
        self._answers.sendall(said[socket.send_fds(self._answers, [said], streams) :])
        self.pid = int(self._line() or 0)
        assert self.pid, f"{__file__} ended: its standard error says why"
        self._child_created = True
        self._close_pipe_fds(*pipes)

    def _line(self) -> bytes:
        said = b""
        while not said.endswith(b"\n") and (more := self._answers.recv(1)):
            said += more
        return said

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        ready, _, _ = select.select([self._answers], [], [], 0 if wait_flags & os.WNOHANG else None)
        return (self.pid, int(self._line() or signal.SIGKILL)) if ready else (0, 0)

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)
        return self.returncode


FORK_SERVER = ForkServer("rowpost")


@contextmanager
def serving() -> Iterator[None]:
    """Let the Python processes of a Spark that is started within the block be forked. It must end within the block too."""
    server = ForkServer("sitecustomize")
    os.environ[SOCKET] = server.path
    try:
        yield
    finally:
        del os.environ[SOCKET]
        server.stop()


# ------------------------------------------------------------------ in the server
def _serve(listening: socket.socket) -> None:
    """Fork a keeper for each program until the tests' process is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers
    while True:
        ready, _, _ = select.select([listening, 0], [], [])
        if 0 in ready:
            return
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            _keep(connection)
        connection.close()


def _keep(connection: socket.socket) -> None:
    """Fork the program, tell its process id, wait for its end, and tell its status."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        said, streams, *_ = socket.recv_fds(connection, _MOST_BYTES, 3)
        while not said.endswith(b"\n"):
            said += connection.recv(_MOST_BYTES)
        request = json.loads(said)
        child = os.fork()
        if child == 0:
            connection.close()
            _become(request, streams)
        for stream in streams:
            os.close(stream)
        with suppress(OSError):  # who started it is gone
            connection.sendall(b"%d\n" % child)
        _, status = os.waitpid(child, 0)
        with suppress(OSError):
            connection.sendall(b"%d\n" % status)
    finally:
        os._exit(0)


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """Run the program, and end the process."""
    import atexit
    import threading

    code: Any = 1
    try:
        if request.get("group"):
            os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        sys.stdin, sys.stderr = open(0), open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
        unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
        sys.stdout = io.TextIOWrapper(open(1, "wb", buffering=0 if unbuffered else -1), write_through=unbuffered)  # noqa: SIM115
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
        _run(request["command"], request.get("path"))
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
        for end_of in (threading._shutdown, atexit._run_exitfuncs, sys.stdout.flush, sys.stderr.flush):
            with suppress(BaseException):
                end_of()
        os._exit(code & 0xFF)


def _run(command: list[str], path: list[str] | None) -> None:
    """Run a command as Python runs it; `path` replaces the path of modules."""
    import runpy
    import types

    kind, named = (command[0], command[1]) if command[0] in ("-c", "-m") else ("", command[0])
    first = {"": str(Path(named).parent), "-m": os.getcwd(), "-c": ""}[kind]
    added = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:] = [os.getcwd(), *path] if path is not None else [first, *added, *sys.path[1:]]
    sys.argv = [named, *command[2:]] if kind == "-m" else ["-c", *command[2:]] if kind else command
    if kind == "-m":
        runpy.run_module(named, run_name="__main__", alter_sys=True)
    elif kind:
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(compile(named, "<string>", "exec"), main.__dict__)
    else:
        runpy.run_path(named, run_name="__main__")


def _import_program() -> None:
    """Import what the command line imports."""
    from rowpost.cli import app

    for name in {each.partition(":")[0] for each in app._MODULES.values()} - {"spark"}:
        import_module(f"rowpost.cli.{name}")
    import psycopg

    import rowpost.database.dialects.postgresql.dialect
    import rowpost.database.embedded
    import rowpost.deploy.apply
    import rowpost.workers.supervision.supervisor

    assert psycopg and rowpost


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as inherited:
        for name in sys.argv[2:]:
            if name == "rowpost":
                _import_program()
            for each in getattr(import_module(name), "PRELOADED", ()):
                import_module(each)
        gc.freeze()
        _serve(inherited)
