"""Random kill -9 of driver, JVM and workers during archive (tail and drain), replay and decode loses and duplicates nothing.

A test takes a quarter of an hour for 20 kills: `make test/spark-slow ARGS="-k kills"`. ROWPOST_KILLS is the number of kills;
ROWPOST_KILL_SEED repeats the choices of a run.
"""

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from rowpost.spark.jobs import verify
from rowpost.spark.jobs.archive import read_archive
from tests.support.spark.archives import ArchiveMaker
from tests.support.spark.killing import ANYTHING, EXECUTORS, fill, kill_until_done, python_of
from tests.support.spark.messages import audit_row, error_row

MESSAGES, KILLS = 200_000, int(os.environ.get("ROWPOST_KILLS", "20"))
A_BATCH = MESSAGES // (KILLS * 5)  # a quiet machine completes three batches between two kills
ROUND = 2_000  # messages of each type
PYCONTROL = Path(__file__).parents[2]
COMMON = ("--conf", "spark.driver.memory=1g", "--master", "local[2,4]")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(6000)]


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("ROWPOST_KILL_SEED", random.randrange(10**6)))
    print(f"ROWPOST_KILL_SEED={chosen}")
    return chosen


@pytest.fixture
def work_folder() -> Iterator[None]:
    """Remove the folder that a cluster on this machine leaves in the package pyspark."""
    yield
    shutil.rmtree(Path(pyspark.__file__).parent / "work", ignore_errors=True)


@pytest.fixture
def environment(spark_url: str) -> dict[str, str]:
    return {**python_of(PYCONTROL), "ROWPOST_SPARK_TEST_URL": spark_url}


def written(folder: Path) -> int:
    """Return the number of the last batch that a stream has planned."""
    return max((int(path.name) for path in folder.glob("offsets/*") if path.name.isdecimal()), default=-1)


@pytest.mark.usefixtures("work_folder")
@pytest.mark.parametrize("victims", [ANYTHING, EXECUTORS], ids=["anything", "executors"])
@pytest.mark.parametrize("mode", ["tail", "drain"])
def test_an_archive_by_tail_or_drain_survives_kills(queues, environment, seed, tmp_path, mode, victims):
    queue, out = queues.make(), tmp_path / "out"
    common = (*COMMON, "--master", "local-cluster[2,1,1024]") if victims is EXECUTORS else COMMON
    fill(queues, queue, MESSAGES, error_row()[5])
    checkpoint = tmp_path / "checkpoint"

    killed = kill_until_done(
        ["--env", queues.environment, "spark", "archive", queue, str(out), f"--{mode}", "--max-rows", str(A_BATCH),
         "--checkpoint", str(checkpoint), *common],
        environment, lambda: written(checkpoint), kills=KILLS, longest=2.5, log=tmp_path / "log", seed=seed, victims=victims,
    )  # fmt: skip

    rows = read_archive(queues.spark, str(out)).select("body").collect()
    numbers = {int(bytes(row.body)) for row in rows}
    print(
        f"{mode}, {victims[-1]}: killed {sum(killed.values())} times: {dict(killed)}; {len(rows)} rows, {len(numbers)} messages"
    )
    assert sum(killed.values()) >= KILLS
    assert (len(rows), numbers) == (MESSAGES, set(range(1, MESSAGES + 1)))
    assert (queues.depth(queue), queues.spooled(queue)) == ((MESSAGES, 0) if mode == "tail" else (0, 0))
    report = verify.run(queues.spark, str(out))
    assert {finding.kind for finding in report.findings} <= {"leftover"}


def test_a_replay_survives_kills(queues, environment, seed, tmp_path):
    queue, target, out = queues.make(), queues.make(), tmp_path / "out"
    fill(queues, queue, MESSAGES, error_row()[5])
    log = tmp_path / "log"
    kill_until_done(["--env", queues.environment, "spark", "archive", queue, str(out), *COMMON], environment, lambda: 0,
                    kills=0, longest=0, log=log, seed=seed)  # fmt: skip
    ramp = ",".join([str(A_BATCH)] * (MESSAGES // A_BATCH - 1))
    folder = out / "_rowpost" / "replays" / "k"

    def seen() -> int:
        return sum(
            (folder / name).stat().st_mtime_ns for name in ("plan.json", "sent.json") if (folder / name).exists()
        )

    killed = kill_until_done(
        ["--env", queues.environment, "spark", "replay", str(out), target, "--job", "k", "--ramp", ramp, "--pause", "0s", *COMMON],
        environment, seen, kills=KILLS, longest=1.5, log=log, seed=seed,
    )  # fmt: skip

    with queues.connect() as database:
        rows, ids, numbers = database.driver_connection.execute(
            f'SELECT count(*), count(DISTINCT id), count(DISTINCT body) FROM public."{target}"'
        ).fetchone()
    print(f"replay: killed {sum(killed.values())} times: {dict(killed)}; {rows} rows, {ids} ids, {numbers} messages")
    assert sum(killed.values()) >= KILLS
    assert (rows, ids, numbers) == (MESSAGES, MESSAGES, MESSAGES)


def test_decoded_tables_survive_kills(spark, environment, seed, tmp_path):
    """Each round adds messages to the archive, and kills runs at any time of their life until one completes."""
    made, killed, chooses = ArchiveMaker(tmp_path / "made"), Counter(), random.Random(seed)
    schemas, out, types = tmp_path / "schemas", tmp_path / "decoded", ("Shop.PlaceOrder", "Shop.Paid")
    schemas.mkdir()
    for name in types:
        (schemas / f"{name}.ddl").write_text("Number BIGINT")
    command = ["spark", "decode", str(made.path), str(out), "--schemas", str(schemas), *COMMON]
    numbers = {name: [] for name in types}
    while sum(killed.values()) < KILLS:
        for name in types:
            first = len(numbers[name])
            numbers[name] += range(first, first + ROUND)
            rows = [
                audit_row(f"{name}-{n}", body=b'{"Number": %d}' % n, EnclosedMessageTypes=name)
                for n in range(first, first + ROUND)
            ]
            made.batch(sum(map(len, numbers.values())), rows)
        some = min(chooses.randint(1, 4), KILLS - sum(killed.values()))
        killed += kill_until_done(
            command,
            environment,
            time.monotonic,
            kills=some,
            longest=12,
            log=tmp_path / "log",
            seed=seed + len(numbers[types[0]]),
        )

    print(
        f"decode: killed {sum(killed.values())} times: {dict(killed)}; {ROUND} messages a round, {len(numbers[types[0]]) // ROUND} rounds"
    )
    for name in types:
        assert (
            sorted(row.Number for row in read_archive(spark, str(out / name)).select("Number").collect())
            == numbers[name]
        )
