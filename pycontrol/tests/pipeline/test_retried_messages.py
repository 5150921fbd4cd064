"""A message that succeeds after failures leaves no count behind: its removal and its count's removal commit together."""

import pytest

from rowpost.pipeline.batch_size import batch_size
from rowpost.pipeline.batches import Batches
from rowpost.recoverability.outcome import Kind
from tests.support.pipelines import pipeline_with


@pytest.fixture
def pipeline(make_queue, open_database):
    """A pipeline whose handler fails at its first call."""
    calls = []

    def fail_once(message, connection):
        calls.append(message.id)
        if len(calls) == 1:
            raise ValueError("not yet")

    made = pipeline_with(open_database(), make_queue().name, fail_once, reconnect=open_database)
    yield made
    made.close()


def counted(sql) -> int:
    return sql.value("SELECT COUNT(*) FROM rowpost.failure")


@pytest.mark.parametrize("batch", ["off", 10])
def test_the_count_of_a_message_is_gone_when_it_succeeds(pipeline, batch, sql):
    sql.run("DELETE FROM rowpost.failure")
    for body in (b"1", b"2"):
        pipeline.database.call("send_message", pipeline.queue, id=None, headers="{}", body=body)

    kinds, counts = [], []
    while Kind.EMPTY not in kinds:
        turn = Batches(pipeline, batch_size(batch, 1.0))  # a new one, which does not yet avoid large batches
        kinds += [outcome.kind for outcome in turn.process(None)]
        counts.append(counted(sql))

    assert (kinds.count(Kind.HANDLED), max(counts), counts[-1]) == (2, 1, 0)
