"""How a queue is read, for an archiver and for Spark's data source, which parses its options to this."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

__all__ = ["DEFAULT_BYTES", "DEFAULT_ROWS", "DRAIN", "EARLIEST", "LATEST", "TAIL", "WATERMARK", "ReadOptions"]

EARLIEST, LATEST, WATERMARK = "earliest", "latest", "watermark"
TAIL, DRAIN = "tail", "drain"
DEFAULT_ROWS = 50_000  # in one batch of a drain
DEFAULT_BYTES = 1 << 30  # in one batch of a drain, and of the archiver


@dataclass(frozen=True)
class ReadOptions:
    """How a queue is read. None is no limit."""

    queue: str  # of a stream that reads several, what was asked for
    environment: str | None = None
    mode: str = TAIL
    starting: str | int = EARLIEST
    ending: str | int = LATEST
    max_rows: int | None = None  # in one batch of a stream, as max_bytes; a larger message is a batch of its own
    max_bytes: int | None = None
    part_rows: int | None = None  # in one partition
    partitions: int = 2
    fail_on_data_loss: bool = True
    watermark_timeout_s: float = 10.0  # for transactions that were writing when a read began
    batch_bytes: int = 4 << 20  # target size of one Arrow batch
    allow_consumers: bool = False
    take_over: bool = False
    connect_retry_s: float = 300.0  # for a server that restarts or fails over
    confirmed: str = "{}"  # JSON: where a stream without a checkpoint continues, by the identity of the queue
    queues: tuple[str, ...] = ()
    pattern: str | None = None  # a stream reads the queues whose whole names it matches
    application: str = "rowpost archive"  # the name under which the server lists the connections

    @property
    def several(self) -> bool:
        """Whether the messages have the column `queue`."""
        return bool(self.queues) or self.pattern is not None

    def parts(self, messages: int) -> int:
        """Return the number of partitions of a batch with so many messages at most."""
        return max(self.partitions, 0 if self.part_rows is None else ceil(messages / self.part_rows))
