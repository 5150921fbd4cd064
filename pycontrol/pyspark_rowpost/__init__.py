"""Register the format `rowpost` with Spark, which imports every installed package whose name starts with pyspark_."""

from rowpost.spark.source.source import QueueSource

__all__ = ["DefaultSource"]


class DefaultSource(QueueSource):
    """The data source `rowpost`, under the class name that Spark requires."""
