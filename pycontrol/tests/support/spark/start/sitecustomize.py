"""Lets Python programs that Spark starts import the installed pyspark, with its bytecode, and not the copy in Spark's archive.

Spark puts pyspark.zip first on their path. The archive contains no bytecode, so each start would compile a second's worth
of modules. Python imports this module at its start, because the tests' session puts its folder on PYTHONPATH.
"""

import sys

sys.path.sort(key=lambda path: path.endswith(".zip") and "/pyspark/python/lib/" in path)
