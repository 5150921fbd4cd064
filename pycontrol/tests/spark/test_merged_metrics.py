"""Hours become days and months with percentiles that are near the exact ones; late messages of a stream are counted."""

from bisect import bisect_left, bisect_right
from datetime import timedelta
from random import Random

import pytest

from rowpost.spark.archive.schemas import FLOW_MERGED
from rowpost.spark.jobs.archive import archive, follow, read_archive
from rowpost.spark.jobs.metrics import Lateness, merged, metrics, start_live
from tests.support.spark.archives import archived_rows
from tests.support.spark.messages import NOON, audit_row, error_row, messages

#: The error of a rank that the guide states.
ERROR = 0.005


def test_percentiles_of_merged_hours_are_within_the_stated_error_of_the_exact_ones(spark):
    source = Random(7)
    sent = [
        (NOON + timedelta(minutes=source.uniform(0, 11 * 60 + 50)), source.lognormvariate(0, 2), source.expovariate(1))
        for _ in range(5_000)
    ]
    rows = [
        audit_row(f"m{number}", sent=at, waited=waited, took=took) for number, (at, waited, took) in enumerate(sent)
    ]
    hours = metrics(archive(messages(spark, *rows), "audit")).cache()
    critical = sorted(round((waited + took) * 1000, 3) for _, waited, took in sent)

    whole = merged(hours, "month").collect()
    (day,) = [row for row in whole if row.messages > 2_500]

    assert sum(row.messages for row in whole) == 5_000 and hours.count() > 11
    for label, rank in {"p50": 0.5, "p95": 0.95, "p99": 0.99}.items():
        value = day[f"critical_ms_{label}"]
        assert (
            bisect_left(critical, value - 1) / len(critical) - ERROR
            <= rank
            <= bisect_right(critical, value + 1) / len(critical) + ERROR
        )
    assert day.critical_ms_max == pytest.approx(critical[-1], abs=1)


def test_sums_are_merged_and_hours_without_times_do_no_harm(spark):
    rows = [audit_row("m1"), audit_row("m2", sent=NOON + timedelta(hours=3), took=2.0), audit_row("m3", sent=NOON + timedelta(hours=20)), error_row("m4", at=NOON + timedelta(hours=5)),
            error_row("m5", at=NOON, ProcessingEndpoint="Failing")]  # fmt: skip
    days = merged(metrics(archive(messages(spark, *rows), "audit")))

    assert [(column.name, column.dataType) for column in days.schema] == [
        (column.name, column.dataType) for column in FLOW_MERGED
    ]
    first, second = days.where("endpoint = 'Sales'").orderBy("period").collect()
    assert (first.messages, first.failed, first.bytes, first.processing_ms_max, second.messages) == (2, 1, 6, 2000.0, 1)
    assert (first.processing_ms_p50, first.processing_ms_p99) == (500.0, 2000.0)
    (failing,) = days.where("endpoint = 'Failing'").collect()
    assert (failing.failed, failing.critical_ms_p50, failing.critical_ms_sketch) == (1, None, None)
    (month,) = merged(days.withColumnRenamed("period", "hour"), "month").where("endpoint = 'Sales'").collect()
    assert (month.messages, month.period.day, month.critical_ms_p50) == (3, 1, 1500.0)


@pytest.fixture
def live(spark, queues, tmp_path):
    """Send messages of hours after noon to an audit queue, and measure them in one run. Its state is in one partition."""
    spark.conf.set("spark.sql.shuffle.partitions", "1")

    class Live:
        queue, out, progress = queues.make(), tmp_path / "live", []

        def send(self, *hours: float) -> None:
            for hour in hours:
                queues.send(self.queue, [b"1"], audit_row(sent=NOON + timedelta(hours=hour), waited=0, took=0)[5])

        def run(self, **options) -> Lateness:
            checkpoint = str(self.out / "_rowpost" / "checkpoint")
            late = Lateness(checkpoint)
            follow(
                start_live(spark, self.queue, str(self.out), checkpoint, environment=queues.environment, **options),
                receivers=[self.progress.append],
                late=late,
            )
            return late

        def hours(self) -> list[tuple[int, int]]:
            return sorted((row["hour"].hour, row["messages"]) for row in archived_rows(self.out, "hour", "messages"))

    yield Live()
    spark.conf.set("spark.sql.shuffle.partitions", "2")


def test_messages_that_come_too_late_for_their_hour_are_counted_in_each_run(live, queues):
    live.send(0.1, 0.2, 3)
    assert live.run().late == 0

    live.send(0.5, 0.6, 4)  # noon has ended, and the run before has closed it
    live.send(0.7)
    queues.send(live.queue, [b"1"], "{}")
    second = live.run()
    assert (second.late, second.skipped) == (3, 1)
    live.send(0.8, 6)
    assert live.run().late == 1

    assert live.hours() == [(12, 2), (15, 1), (16, 1)]
    assert sum(each.late or 0 for each in live.progress) == 4


def test_a_longer_wait_takes_late_messages_and_the_hours_have_sketches_that_are_merged(spark, live):
    live.send(0.1, 3)
    live.run(lateness="6 hours")
    live.send(0.5, 4, 12)

    assert live.run(lateness="6 hours").late == 0

    assert live.hours() == [(12, 2), (15, 1), (16, 1)]
    assert all(row["critical_ms_sketch"] is not None for row in archived_rows(live.out, "critical_ms_sketch"))
    (day,) = merged(read_archive(spark, str(live.out))).collect()
    assert (day.messages, day.critical_ms_p50, day.period.day) == (4, 0.0, 17)
