"""Starts the Python programs of the tests' Spark sooner. Python imports this module, because the tests' session puts its folder on PYTHONPATH.

Spark puts pyspark.zip first on their path. The archive contains no bytecode, so each start would compile a second's worth
of modules: the installed pyspark is imported instead.

PySpark's daemon forks a worker for each task and each plan. Each would import the same 600 modules, in a second: here the
daemon has them before. numpy starts no threads then, because a process with threads must not fork. Nothing of
rowpost.spark is among them: its import looks at the process that it is in.

In the tests' session, the daemons and the processes that plan a stream are forked too, by ../fork_server.py: what Spark has started sends its
request there, and waits for the end of the other one.
"""

import gc
import os
import sys
from importlib import import_module

PRELOADED = (
    "adbc_driver_postgresql.dbapi",
    "psycopg",
    "pyarrow.compute",
    "pyspark.sql.datasource_internal",
    "pyspark.sql.streaming.datasource",
    "pyspark.worker",
    "rowpost.archive.merging",
    "rowpost.archive.source.reading",
    "rowpost.archive.source.several",
    "rowpost.database.dialects.postgresql.dialect",
    "rowpost.deploy.plan",
    "rowpost.transport.queue",
)
SERVER = "ROWPOST_TEST_SPARK_PROCESSES"


def hand_over(path: str, module: str, arguments: list[str]) -> None:
    """Let the server fork this program, wait until it has ended, and exit. Returns if there is no server."""
    import json
    import socket

    request = {"module": module, "arguments": arguments, "env": dict(os.environ), "cwd": os.getcwd(), "path": sys.path}
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except OSError:  # the tests' session has ended, and its JVM serves another one
            return
        said = json.dumps(request).encode() + b"\n"
        connection.sendall(said[socket.send_fds(connection, [said], [0, 1, 2]) :])
        for number in (0, 1, 2):
            os.close(number)  # Spark waits for the end of what its processes write
        connection.recv(1)
    os._exit(0)


sys.path.sort(key=lambda path: path.endswith(".zip") and "/pyspark/python/lib/" in path)
started = sys.orig_argv[sys.orig_argv.index("-m") + 1 :] if "-m" in sys.orig_argv[1:3] else []

if started[:1] == ["pyspark.daemon"] or started[:1] == ["pyspark.sql.streaming.python_streaming_source_runner"]:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    if SERVER in os.environ:
        hand_over(os.environ[SERVER], started[0], started[1:])
    if started[0] == "pyspark.daemon":
        for name in PRELOADED:
            import_module(name)
        gc.freeze()  # a worker collects garbage after each task, and would search all of these modules
