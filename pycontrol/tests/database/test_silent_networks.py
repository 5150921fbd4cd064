"""Connections ask TCP to notice a network that has become silent."""

import json
import os
import subprocess
import sys

import pytest

from rowpost.database.connection import connect_url
from tests.support.half_open import LIMIT_S, command


@pytest.fixture
def url(target):
    if target.settings.engine != "postgresql":
        pytest.skip("these are settings of libpq, PostgreSQL's driver")
    return target.url


def parameters(url: str) -> dict[str, str]:
    with connect_url("postgresql", url) as database:
        return database.driver_connection.info.get_parameters()


def test_keep_alive_packets_and_a_time_limit_are_the_default(url):
    found = parameters(url)

    assert {key: found.get(key) for key in ("keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout")} == {
        "keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "4", "tcp_user_timeout": "30000",
    }  # fmt: skip


def test_the_url_may_say_otherwise(url):
    found = parameters(f"{url}{'&' if '?' in url else '?'}tcp_user_timeout=90000&keepalives_idle=60")

    assert (found["tcp_user_timeout"], found["keepalives_idle"], found["keepalives_interval"]) == ("90000", "60", "5")


@pytest.mark.skipif(sys.platform != "linux", reason="packets are dropped by a filter of Linux")
def test_calls_into_a_silent_network_end(url):
    """Both: one that waits for a reply (keep-alive packets), and one that is not acknowledged (tcp_user_timeout)."""
    if "host=/" not in url:
        pytest.skip("reaches the server by the folder of its socket")
    options = "keepalives_idle=1&keepalives_interval=1&keepalives_count=2&tcp_user_timeout=3000"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    run = subprocess.run(command(url, options), env=environment, capture_output=True, text=True, timeout=3 * LIMIT_S)

    ends = json.loads(run.stdout or "null")
    assert ends is not None, run.stderr
    assert {name: kind for name, (kind, _) in ends.items()} == {
        "waits": "DatabaseUnavailable",
        "sends": "DatabaseUnavailable",
    }
