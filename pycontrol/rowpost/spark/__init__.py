"""Queues and their archive on Spark: a data source, a sink, and the jobs of `rowpost spark`.

    from rowpost.spark.session import session

    session().read.format("rowpost").option("queue", "audit").load().show()

The extra `rowpost[spark]` installs PySpark and Java. No module outside this package imports pyspark. The modules here
start Spark and explain it. Above them are `archive`, then `source` and `bodies`, then `jobs`.
"""

from rowpost.spark.broken_pipes import hide_broken_pipes
from rowpost.spark.message_ids import message_id

__all__ = ["message_id"]

hide_broken_pipes()  # every worker that reads or writes queues imports this package first
