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
    """How a queue is read.

    Attributes:
        queue: the queue; of a stream that reads several, what was asked for.
        queues: the queues of a stream that reads several.
        pattern: a regular expression; a stream reads the queues whose whole names it matches.
        starting: a row version, "earliest" or "latest".
        ending: a row version, "latest" or "watermark".
        max_rows: rows in one batch of a stream; None for no limit.
        max_bytes: bytes of headers and bodies in one batch of a stream; None for no limit. A larger message is a batch
            of its own.
        part_rows: messages in one partition; None for no limit.
        watermark_timeout_s: seconds that a read waits for transactions that were writing when it began.
        batch_bytes: target size of one Arrow batch.
        connect_retry_s: seconds that a stream waits for a server that restarts or fails over.
        application: the name under which the server lists the connections.
        confirmed: JSON: the offset at which a stream without a checkpoint continues, by the identity of the queue.
            `starting` is for others.
    """

    queue: str
    environment: str | None = None
    mode: str = TAIL
    starting: str | int = EARLIEST
    ending: str | int = LATEST
    max_rows: int | None = None
    max_bytes: int | None = None
    part_rows: int | None = None
    partitions: int = 2
    fail_on_data_loss: bool = True
    watermark_timeout_s: float = 10.0
    batch_bytes: int = 4 << 20
    allow_consumers: bool = False
    take_over: bool = False
    connect_retry_s: float = 300.0
    confirmed: str = "{}"
    queues: tuple[str, ...] = ()
    pattern: str | None = None
    application: str = "rowpost archive"

    @property
    def several(self) -> bool:
        """Whether the messages have the column `queue`."""
        return bool(self.queues) or self.pattern is not None

    def parts(self, messages: int) -> int:
        """Return the number of partitions of a batch with so many messages at most."""
        return max(self.partitions, 0 if self.part_rows is None else ceil(messages / self.part_rows))
