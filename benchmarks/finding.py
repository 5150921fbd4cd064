"""Measure how an archive is searched for one conversation or message: `PYTHONPATH=pycontrol python -m benchmarks.finding --messages 1000000`.

It writes the archive twice with rowpost's writer, without a database: first with no Bloom filters, no index of pages and no order of
conversations ("plain"), then as rowpost writes it. Each archive is searched as the archiver has left it, in files of 250,000
messages, and again after a merge to files of up to 128 MB. The archive is deleted before the next one is written. 10,000,000 messages
need 5 GB below `--folder` and half an hour.

Messages have headers of about 890 bytes with random ids and a body of 256 bytes, half of which is random. 300 conversations of 1 to 8
messages are open at any time. Each figure is the median of searches for messages at several places of the archive.

"find" is `rowpost spark find` in this process, for all three kinds of ids. "Spark" runs with one core in a session that has been used: the
steps of a conversation as `conversations --id` reads them, and all columns of a message. Bytes are what the process has read by
system calls, from the disk or from the system's cache. Seconds are with the files in the system's cache. The memory is the highest of this process
while it merges one group of files, without Spark.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from unittest import mock

import psutil
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.spark import HEADERS
from rowpost.archive import parts
from rowpost.archive.arrow_headers import archived
from rowpost.archive.columns import ARCHIVE, PARTITIONS
from rowpost.archive.finding import find
from rowpost.archive.merging import FILE_BYTES, small_files, write_merged
from rowpost.archive.parts import write_parts
from rowpost.archive.table import ArchiveTable, DataFile, create_table, open_table
from rowpost.spark.jobs.archive import read_archive
from rowpost.spark.jobs.reports import one_conversation
from rowpost.spark.session import session
from rowpost.wire.message import format_timestamp

PLAIN, FINDABLE = "plain", "as rowpost writes it"
BATCH_MESSAGES, ARROW_MESSAGES = 250_000, 8192
OPEN_CONVERSATIONS, LONGEST = 300, 8
MESSAGES_PER_S = 500
PLACES = (0.07, 0.51, 0.93)
START = datetime(2026, 11, 20, tzinfo=UTC)
FILES = pa.schema([field for field in ARCHIVE if field.name not in PARTITIONS])
ROWS = pa.schema([*FILES, pa.field("queue", pa.string()), pa.field("day", pa.date32())])
MEGABYTE = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the archive is written, and deleted"
    )
    parser.add_argument("--output", type=Path, help="write the figures to this file as JSON")
    asked = parser.parse_args()
    # the threads of Arrow and of deltalake use one core too
    pa.set_cpu_count(1)
    spark = session("benchmark", master="local[1]", config={"spark.driver.memory": "2g"})
    found = {}
    for layout in (PLAIN, FINDABLE):
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder, layout_of(layout):
            found[layout] = measure(spark, Path(folder) / "archive", asked.messages)
    spark.stop()
    show(asked.messages, found)
    if asked.output is not None:
        machine = {
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "pyarrow": pa.__version__,
        }
        asked.output.write_text(
            json.dumps(
                {"time": f"{datetime.now(UTC):%Y-%m-%d}", "messages": asked.messages, **machine, "layouts": found},
                indent=1,
            )
            + "\n"
        )


def layout_of(name: str) -> ExitStack:
    """Write files without what searches need, if the layout is PLAIN."""
    stack = ExitStack()
    if name == PLAIN:
        stack.enter_context(mock.patch.multiple(parts, SEARCHED=(), _PAGES={}))
        stack.enter_context(mock.patch("rowpost.archive.merging.merged", lambda rows: rows))
    return stack


# ---------------------------------------------------------------------------------------------- messages
def messages(count: int) -> Iterator[pa.RecordBatch]:
    """Generate archived messages in the order of arrival, the same in each call."""
    numbers = random.Random(7)
    template = json.dumps(HEADERS | dict.fromkeys(("NServiceBus.MessageId", "NServiceBus.CorrelationId"), "{id}") | {
        "NServiceBus.ConversationId": "{conversation}", "NServiceBus.TimeSent": "{sent}", "NServiceBus.ProcessingStarted": "{started}",
        "NServiceBus.ProcessingEnded": "{ended}"})  # fmt: skip
    names = ("id", "conversation", "sent", "started", "ended")
    open_conversations = [[identity(numbers), 1] for _ in range(OPEN_CONVERSATIONS)]
    for first in range(0, count, ARROW_MESSAGES):
        rows = []
        for row_version in range(first + 1, min(first + ARROW_MESSAGES, count) + 1):
            conversation = numbers.choice(open_conversations)
            if conversation[1] == 0:
                conversation[:] = identity(numbers), numbers.randint(1, LONGEST)
            conversation[1] -= 1
            sent = START + timedelta(seconds=row_version / MESSAGES_PER_S)
            times = (
                format_timestamp(sent + timedelta(milliseconds=after))
                for after in (0, numbers.randint(1, 900), numbers.randint(901, 2000))
            )
            headers, message_id = template, identity(numbers)
            for name, value in zip(names, (message_id, conversation[0], *times), strict=True):
                headers = headers.replace(f"{{{name}}}", value)
            rows.append({"id": message_id, "recoverable": True, "headers": headers, "body": numbers.randbytes(128).hex().encode(),
                         "row_version": row_version, "archived_at": sent + timedelta(seconds=5), "queue": "audit"})  # fmt: skip
        stored = pa.schema(
            [
                field
                for field in ROWS
                if field.name in ("id", "correlation_id", "reply_to_address", "recoverable", "expires", *rows[0])
            ]
        )
        yield archived(pa.RecordBatch.from_pylist(rows, schema=stored))


def identity(numbers: random.Random) -> str:
    """Return a random id as NServiceBus writes it."""
    digits = numbers.randbytes(16).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


# ---------------------------------------------------------------------------------------------- measuring
def measure(spark: SparkSession, path: Path, count: int) -> dict[str, object]:
    """Write, search, merge and search again."""
    table, places = create_table(str(path)), {int(count * place) for place in PLACES}
    made, wanted, written_s = messages(count), [], 0.0
    while batches := list(islice(made, -(-BATCH_MESSAGES // ARROW_MESSAGES))):
        wanted += [row for batch in batches for row in chosen(batch, places)]
        begin = time.process_time()
        table.commit(list(write_parts(batches, str(path), FILES, "batch")), note={})
        written_s += time.process_time() - begin
    del batches
    before = {**size_of(table), "write_cpu_us_per_message": written_s / count * 1e6, **searches(spark, path, wanted)}
    return {"of the archiver": before, "merged": {**merge(table), **size_of(table), **searches(spark, path, wanted)}}


def chosen(batch: pa.RecordBatch, places: set[int]) -> list[tuple[str, str]]:
    """Return the ids of the messages and conversations to search for."""
    first = batch.column("row_version")[0].as_py()
    return [(batch.column("message_id")[place - first].as_py(), batch.column("conversation_id")[place - first].as_py()) for place in places
            if first <= place < first + len(batch)]  # fmt: skip


def size_of(table: ArchiveTable) -> dict[str, float]:
    files = table.files()
    return {
        "files": len(files),
        "bytes_per_message": sum(file.bytes for file in files) / sum(file.rows for file in files),
    }


def merge(table: ArchiveTable) -> dict[str, float]:
    """Merge the files as `compact` does, but without Spark, and delete the replaced ones."""
    begin, cpu, groups = (
        time.perf_counter(),
        time.process_time(),
        small_files(table.files(), 2, tiers=(FILE_BYTES // 2,)),
    )
    gc.collect()
    pa.default_memory_pool().release_unused()
    Path("/proc/self/clear_refs").write_text("5")  # starts VmHWM anew
    at_rest = psutil.Process().memory_info().rss
    rows = sum(file.rows for group in groups for file in group)
    for group in groups:
        assert table.commit(merged_files(table, group), group, note={}, same_rows=True)
        table.vacuum(at_once=True)
    status = Path("/proc/self/status").read_text()
    peak = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    return {"merge_s": time.perf_counter() - begin, "merge_cpu_us_per_message": (time.process_time() - cpu) / max(rows, 1) * 1e6,
            "merge_memory_mb": (peak - at_rest) / MEGABYTE}  # fmt: skip


def merged_files(table: ArchiveTable, group: Sequence[DataFile]) -> list[parts.NewFile]:
    return list(
        write_merged([(file.path, file.queue, file.day) for file in group], table.folder.path, FILES, "compact")
    )


def searches(spark: SparkSession, path: Path, wanted: Sequence[tuple[str, str]]) -> dict[str, dict[str, float]]:
    """Return seconds and megabytes of each kind of search."""
    java = next(each for each in psutil.Process().children(recursive=True) if "java" in each.name())
    steps = lambda ids: one_conversation(read_archive(spark, str(path)), ids[1])  # noqa: E731
    row = lambda ids: read_archive(spark, str(path)).where(f"message_id = '{ids[0]}'").collect()  # noqa: E731
    kinds: dict[str, tuple[int, Callable[[tuple[str, str]], Sequence[object]]]] = {
        "find a message": (os.getpid(), lambda ids: find(open_table(str(path)), ids[0], 100)),
        "find a conversation": (os.getpid(), lambda ids: find(open_table(str(path)), ids[1], 100)),
        "Spark, a message": (java.pid, row),
        "Spark, a conversation": (java.pid, steps),
    }
    found = {}
    for kind, (pid, search) in kinds.items():
        search(wanted[0])  # compiles the query, and loads the files into the system's cache
        rounds = [timed(pid, search, ids) for ids in wanted]
        found[kind] = {
            "s": statistics.median(s for s, _ in rounds),
            "mb": statistics.median(size for _, size in rounds) / MEGABYTE,
        }
    return found


def timed(pid: int, search: Callable[[tuple[str, str]], Sequence[object]], ids: tuple[str, str]) -> tuple[float, int]:
    """Return the seconds of a search and the bytes that a process has read for it."""
    before, begin = bytes_read(pid), time.perf_counter()
    assert search(ids), ids
    return time.perf_counter() - begin, bytes_read(pid) - before


def bytes_read(pid: int) -> int:
    """Return the bytes of all system calls that read."""
    return int(Path(f"/proc/{pid}/io").read_text().split()[1])


def show(count: int, found: dict[str, dict]) -> None:
    """Print the figures as tables of Markdown."""
    print(f"{count:,} messages\n")
    print(
        "| Files | Number | Bytes a message | CPU a message, write or merge | Memory of a merge |\n|---|---|---|---|---|"
    )
    states = [(layout, state, figures) for layout, states in found.items() for state, figures in states.items()]
    for layout, state, figures in states:
        cpu = figures.get("write_cpu_us_per_message") or figures["merge_cpu_us_per_message"]
        memory = f"{figures['merge_memory_mb']:.0f} MB" if "merge_s" in figures else ""
        print(
            f"| {layout}, {state} | {figures['files']} | {figures['bytes_per_message']:.0f} | {cpu:.1f} µs | {memory} |"
        )
    kinds = [kind for kind, value in states[0][2].items() if isinstance(value, dict)]
    print(f"\n| Files | {' | '.join(kinds)} |\n|{'---|' * (len(kinds) + 1)}")
    for layout, state, figures in states:
        cells = (f"{figures[kind]['s']:.2f} s, {figures[kind]['mb']:,.1f} MB" for kind in kinds)
        print(f"| {layout}, {state} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
