"""Queues and their archive on Spark: a data source, a sink, and the jobs of `rowpost spark`.

The extra `rowpost[spark]` installs PySpark and Java. No module outside this package imports pyspark. The command
line imports this package only when a `rowpost spark` command runs.

    from rowpost.spark.session import session

    spark = session()
    spark.read.format("rowpost").option("queue", "audit").load().show()

* `session`, `java` and `doctor` start Spark and check what it needs.
* `message_id` computes the ids of messages that are made of rows.
* `source/` is the data source, with its streams and sinks.
* `archive/` reads and changes an archive's files. `archive/schemas.py` defines the columns of all results.
* `jobs/` has one module for each command: a function from DataFrame to DataFrame, and a `run` that reads and writes.
"""

from rowpost.spark.broken_pipes import hide_broken_pipes
from rowpost.spark.message_ids import message_id

__all__ = ["message_id"]

hide_broken_pipes()  # every worker that reads or writes queues imports this package first
