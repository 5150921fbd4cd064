"""The session, and the settings that every job counts on."""

from datetime import UTC, datetime

from rowpost.spark.schemas import MESSAGE


def test_times_are_utc_and_written_as_every_engine_reads_them(spark):
    said = spark.sql("SELECT CAST(TIMESTAMP '2026-11-20 12:00:00' AS string) AS said").first().said

    assert said == "2026-11-20 12:00:00"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MICROS"


def test_a_message_goes_through_parquet_as_it_is(spark, tmp_path):
    row = ("id", None, None, True, datetime(2026, 11, 20, tzinfo=UTC), "{}", b"\x00\xff", 7)

    spark.createDataFrame([row], MESSAGE).write.parquet(str(tmp_path / "out"))

    assert spark.read.parquet(str(tmp_path / "out")).first().body == b"\x00\xff"
