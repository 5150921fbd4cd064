"""Queues on a server whose log is decoded, and streams that read them. `served` says which server; a module may have another one."""

import psycopg
import pytest

from tests.support.spark.logs import LogRun, drop_slots, log_server


@pytest.fixture(scope="module")
def served(spark):
    with log_server(spark) as made:
        yield made


@pytest.fixture
def queues(served):
    yield served[1]
    drop_slots(served[1])


@pytest.fixture
def run(queues, tmp_path):
    return LogRun(queues, tmp_path)


@pytest.fixture
def connection(queues):
    with psycopg.connect(queues.url, autocommit=True) as made:
        yield made
