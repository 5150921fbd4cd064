"""An error of Spark's process within a batch is passed on without its stack trace."""

import traceback

import pytest
from pyspark.errors import PySparkException

from rowpost.errors import SparkFailed
from rowpost.spark.explain import short_errors

LONG = (
    "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: Job aborted\n"
    + "\tat some.Java.line(File.scala:1)\n" * 1000
)


def test_an_error_of_a_batch_has_its_reason_and_no_stack_of_java():
    @short_errors()
    def batch():
        raise PySparkException(LONG)

    with pytest.raises(SparkFailed, match="Job aborted") as raised:
        batch()

    said = "".join(traceback.format_exception(raised.value))
    assert "rowpost.errors.SparkFailed: Spark failed: Job aborted" in said
    assert len(said) < 2000 and "some.Java.line" not in said


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SparkFailed("refused")])
def test_other_errors_of_a_batch_pass_unchanged(error):
    with pytest.raises(type(error)) as raised, short_errors():
        raise error

    assert raised.value is error
