"""A call on a connection whose server has stopped says that the database cannot be reached, however the server stopped."""

import tempfile
from pathlib import Path

import pytest

from rowpost.database.connection import connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.errors import DatabaseUnavailable
from rowpost.settings.environment import QueueSettings, Settings
from tests.support.postgres import Server


@pytest.fixture(scope="module")
def made():
    """A server with rowpost and a queue named Sales."""
    with tempfile.TemporaryDirectory(prefix="rowpost-", ignore_cleanup_errors=True) as name:
        made = Server(Path(name) / "p")
        made.create()
        made.start()
        try:
            with connect_url("postgresql", made.url(), "rowpost tests") as database:
                apply(database, plan(Settings(engine="postgresql", url=made.url(), queues=(QueueSettings("Sales"),))))
            yield made
        finally:
            made.stop()


@pytest.fixture
def server(made):
    """The same, running."""
    if not made.running:
        made.start()
    return made


@pytest.mark.parametrize("how", ["fast", "immediate", "kill"])
@pytest.mark.parametrize("prepared", [False, True], ids=["first call", "later call"])
def test_a_call_after_the_server_has_stopped_finds_it_unavailable(server, how, prepared):
    with connect_url("postgresql", server.url(), "rowpost tests") as database:
        if prepared:
            database.call("peek_queue", "Sales", count=1)

        server.kill() if how == "kill" else server.stop(how)

        with pytest.raises(DatabaseUnavailable):
            database.call("peek_queue", "Sales", count=1)
