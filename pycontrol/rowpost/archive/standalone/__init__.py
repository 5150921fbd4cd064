"""The archiver of `rowpost archive`, which needs no Spark: it reads queues by `source`, and writes the table."""
