"""A row has the same message id in each run: that of uuid.uuid5."""

import uuid

import pytest
from pyspark.errors import PySparkException

from rowpost.spark import message_id


def test_the_id_is_that_of_uuid5_of_the_job_and_the_key(spark):
    rows = [("north", 1), ("süd", 22), ("", 333), ("\U0001f600", -4)]
    df = spark.createDataFrame(rows, "region string, number int")

    found = df.select(
        "region",
        "number",
        message_id("import-1", "region", df.number).alias("two"),
        message_id("ö", "number").alias("one"),
    ).collect()

    two, one = (uuid.uuid5(uuid.NAMESPACE_OID, f"rowpost load {job}") for job in ("import-1", "ö"))
    assert [(row.region, row.number) for row in found] == rows
    assert [row.two for row in found] == [str(uuid.uuid5(two, f"{region}\x1f{number}")) for region, number in rows]
    assert [row.one for row in found] == [str(uuid.uuid5(one, str(number))) for _, number in rows]


def test_a_row_without_its_key_fails_the_query_instead_of_getting_another_id_in_each_run(spark):
    df = spark.createDataFrame([("north", 1), (None, 2)], "region string, number int")

    with pytest.raises(PySparkException, match="row of the job 'import-1' has a null in its key"):
        df.select(message_id("import-1", "region", "number")).collect()


def test_an_id_needs_a_key():
    with pytest.raises(ValueError, match="at least one column"):
        message_id("import-1")
