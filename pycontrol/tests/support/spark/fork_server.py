"""Starts the Python processes of the tests' Spark and imports their modules once: they are forked from a process that has imported them.

Spark starts a process for each stream, and a daemon for each kind of work. Each imports 600 modules, in a second. Here they are processes
of their own too, with the variables, paths and standard streams that Spark gave them, and share nothing but the imported code.

`serving` starts the server, and names its socket in a variable, which Spark's JVM hands on. start/sitecustomize.py sends the server what Spark
has started. This file is also the server's program, which imports nothing of the tests.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
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

__all__ = ["SOCKET", "serving"]

#: The variable that names the socket.
SOCKET = "ROWPOST_TEST_SPARK_PROCESSES"
_MOST_BYTES = 1 << 20


@contextmanager
def serving() -> Iterator[None]:
    """Let the Python processes of a Spark that is started within the block be forked. It must end within the block too."""
    with tempfile.TemporaryDirectory(prefix="rowpost-") as folder:  # short: the path of a socket has room for a hundred characters
        path = str(Path(folder) / "socket")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen()
            server = subprocess.Popen(
                [sys.executable, __file__, str(listening.fileno())],
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # numpy starts no threads then: a process with threads must not fork
                pass_fds=[listening.fileno()],
                stdin=subprocess.DEVNULL,
            )
        os.environ[SOCKET] = path
        try:
            yield
        finally:
            del os.environ[SOCKET]
            server.terminate()
            server.wait()


# ------------------------------------------------------------------ in the server
def _serve(listening: socket.socket) -> None:
    """Fork a process for each request, until the server is terminated."""
    while True:
        connection, _ = listening.accept()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # those that have ended meanwhile
                pass
        if os.fork() == 0:
            listening.close()
            _become(connection)
        connection.close()


def _become(connection: socket.socket) -> None:
    """Run a module as the program that Spark has started. The connection is open until it has ended."""
    code: Any = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        said, streams, *_ = socket.recv_fds(connection, _MOST_BYTES, 3)
        while not said.endswith(b"\n"):
            said += connection.recv(_MOST_BYTES)
        request = json.loads(said)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        sys.path[:] = [request["cwd"], *request["path"]]
        module, sys.argv = request["module"], [request["module"], *request["arguments"]]
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(BaseException):
                stream.flush()
        os._exit(code & 0xFF)


if __name__ == "__main__":
    from sitecustomize import PRELOADED

    for name in PRELOADED:
        import_module(name)
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as inherited:
        _serve(inherited)
