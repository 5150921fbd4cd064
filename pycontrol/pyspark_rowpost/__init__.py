"""Where Spark looks for the format `rowpost` by itself: it imports what is installed under the name pyspark_*."""

from rowpost.spark.source.source import QueueSource

__all__ = ["DefaultSource"]


class DefaultSource(QueueSource):
    """The data source `rowpost`, under the name by which Spark finds it."""
