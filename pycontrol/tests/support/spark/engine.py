"""Run a stream of the data source as Spark's engine for micro-batches does, in this process and without a JVM.

`Engine.run` calls the reader of `spark.readStream.format("rowpost")` in the order in which Spark calls it, and keeps the offsets as JSON. The
parts of a batch are read by copies of the reader, as in Spark's tasks. Tests of what a stream plans, reads and refuses need no more of Spark.
"""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadLimit

from rowpost.spark.source.readers import StreamReader
from rowpost.spark.source.source import QueueSource

__all__ = ["Engine"]


@dataclass
class Engine:
    """Runs streams, with a checkpoint for each name.

    Attributes:
        environment: the path of the environment file, unless the options name another one.
        offsets: the end of the last batch of each checkpoint, as JSON.
        found: the rows that all runs with each checkpoint have read.
        batches: the number of rows in each batch of the last run that has some.
    """

    environment: str
    offsets: dict[str, str] = field(default_factory=dict)
    found: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    batches: list[int] = field(default_factory=list)

    def run(self, checkpoint: str = "checkpoint", **options: object) -> list[dict[str, Any]]:
        """Run a stream until it has read the messages that are there now. Returns the rows of all runs with this checkpoint so far."""
        reader = self.reader(**options)
        self.batches = []
        try:
            reader.prepareForTriggerAvailableNow()
            while (rows := self.batch(reader, checkpoint)) is not None:
                self.batches += [len(rows)] if rows else []  # messages that are not there any more leave gaps
        finally:
            reader.stop()
        return self.found[checkpoint]

    def reader(self, **options: object) -> StreamReader:
        """Return the reader of a stream, as Spark's planning process makes it."""
        named = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
        source = QueueSource({"environment": self.environment, **named})
        return source.streamReader(source.schema())

    def batch(
        self, reader: StreamReader, checkpoint: str = "checkpoint", limit: ReadLimit | None = None
    ) -> list[dict[str, Any]] | None:
        """Plan a batch, log its end, commit the batch before it, and read it. Returns its rows; None if there is nothing to read."""
        known = self.offsets.get(checkpoint)
        start = reader.initialOffset() if known is None else json.loads(known)
        planned = json.dumps(reader.latestOffset(start, limit or reader.getDefaultReadLimit()))
        if known is not None and json.loads(planned) == start:  # the first batch is logged although it may be empty
            return None
        self.offsets[checkpoint] = planned
        if known is not None:
            reader.commit(start)
        tasks = pickle.dumps((reader, reader.partitions(start, json.loads(planned))))
        task, parts = pickle.loads(tasks)
        rows = [
            row for part in parts for batch in task.read(part) for row in pa.Table.from_batches([batch]).to_pylist()
        ]
        self.found[checkpoint] += rows
        return rows
