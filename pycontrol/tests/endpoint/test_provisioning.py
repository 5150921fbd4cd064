"""An endpoint that prepares its own database, in one that a newer release has deployed."""

import pytest

from rowpost.database.connection import connect_url
from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.provisioning import prepare
from rowpost.errors import SchemaTooNew
from rowpost.settings.environment import Settings
from rowpost.transport.queue import Queue
from rowpost.version import __version__

NEXT = "{}.{}.0".format(__version__.split(".")[0], int(__version__.split(".")[1]) + 1)


@pytest.fixture
def database(new_database):
    with connect_url("postgresql", new_database("embedded")) as opened:
        prepare(Endpoint("Sales"), opened)
        yield opened


def test_an_endpoint_works_in_a_database_of_the_next_release(database):
    database.call("record_version", schema_version=999, tool_version=NEXT)

    prepare(Endpoint("Sales"), database)

    assert database.call("get_version")[0].schema_version == 999


def test_an_endpoint_deploys_nothing_there(database):
    database.call("record_version", schema_version=999, tool_version=NEXT)

    with pytest.raises(SchemaTooNew):
        prepare(Endpoint("Billing"), database)

    assert "Billing" not in {row.queue_name for row in database.call("list_queues")}


def test_an_endpoint_refuses_a_database_of_a_release_that_does_not_serve_it(database):
    database.call("record_version", schema_version=999, tool_version="99.0.0")

    with pytest.raises(SchemaTooNew, match=r"deployed by rowpost 99\.0\.0"):
        prepare(Endpoint("Sales"), database)


def test_an_endpoint_of_another_default_schema_makes_it(new_database):
    endpoint = Endpoint("Sales")
    endpoint.configure(Settings(default_schema="made"))
    with connect_url("postgresql", new_database("embedded")) as database:
        prepare(endpoint, database)
        with endpoint.open(database) as bus:
            bus.send(b"x", to="Sales")

        assert Queue("Sales@[made]", database).peek(5) == 1
