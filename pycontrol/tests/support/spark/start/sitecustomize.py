"""Starts the Python programs of the tests' Spark sooner. Python imports this module, because the tests' session puts its folder on PYTHONPATH.

Spark puts pyspark.zip first on their path. The archive contains no bytecode, so each start would compile a second's worth
of modules: the installed pyspark is imported instead.

PySpark's daemon forks a worker for each task and each plan. Each would import the same 330 modules, in a second: here the
daemon has them before. numpy starts no threads then, because a process with threads must not fork. Nothing of
rowpost.spark is among them: its import looks at the process that it is in.
"""

import os
import sys
from importlib import import_module

PRELOADED = (
    "adbc_driver_postgresql.dbapi",
    "psycopg",
    "pyarrow.compute",
    "pyspark.sql.datasource_internal",
    "pyspark.worker",
    "rowpost.database.dialects.postgresql",
    "rowpost.deploy.plan",
    "rowpost.transport.queue",
)

sys.path.sort(key=lambda path: path.endswith(".zip") and "/pyspark/python/lib/" in path)

if "pyspark.daemon" in sys.orig_argv:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in PRELOADED:
        import_module(name)
