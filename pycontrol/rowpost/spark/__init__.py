"""Queues and their archive on Spark: a source, a sink, and the pipelines of `rowpost spark`.

`pip install 'rowpost[spark]'` brings all of it, a Java included. Nothing outside this package imports pyspark, and the
command line imports this package only when one of its commands runs.

    from rowpost.spark.session import session

    spark = session()
    spark.read.format("rowpost").option("queue", "audit").load().show()

schemas.py has the columns of everything that is read and written, pipelines/ one module a job: each a function from
DataFrame to DataFrame, and a thin run around it.
"""
