"""Queues that come and go one at a time, and the rights of endpoints."""

import pytest

from rowpost.deploy.apply import apply
from rowpost.deploy.grants import grant, grant_statements
from rowpost.deploy.queues import (
    create_queue,
    drop_queue,
    forget_queue,
)
from rowpost.deploy.verify import verify
from rowpost.errors import DeployError, InvalidQueueName, PermissionDenied, QueueNotFound, SchemaMissing, SchemaTooNew
from rowpost.settings.environment import Settings
from rowpost.transport.error_queue import ErrorQueue
from rowpost.transport.queue import Queue
from rowpost.wire.address import parse_address


@pytest.fixture
def deployed(shop, database):
    """The shop's database with the environment deployed."""
    apply(database, shop.plan())
    return database


def names(database):
    return [row[0] for row in database.call("list_queues")]


def test_a_created_queue_carries_messages_and_is_as_planned(shop, deployed):
    create_queue(deployed, "New")

    queue = Queue("New", deployed)
    queue.send(b"hello", {"a": "b"})
    (message,) = queue.receive()
    assert message.body == b"hello"
    assert verify(deployed, shop.plan()) == []


def test_creating_a_queue_again_does_nothing(deployed):
    create_queue(deployed, "New")

    assert create_queue(deployed, "New").applied == ()


def check_names(shop, database, found):
    """Create queues of these names; each takes a message of its own, and all are as planned."""
    for name in found:
        create_queue(database, name)
        Queue(name, database).send(name.encode())

    assert {name: [each.body for each in Queue(name, database).browse(2)] for name in found} == {
        name: [name.encode()] for name in found
    }
    assert verify(database, shop.plan()) == []


def test_a_name_may_hold_nearly_anything(shop, deployed):
    found = ["a b", "it's", "ein~Name", "Ünïcode漢", "with.dots-and-more"]
    # Babelfish's QUOTENAME doubles apostrophes, and its parser miscounts beyond ASCII
    check_names(shop, deployed, [name for name in found if not shop.babelfish or ("'" not in name and name.isascii())])


def test_a_name_may_hold_what_sql_means_something_by(shop, deployed):
    if shop.babelfish:
        pytest.skip("Babelfish cannot create tables whose names hold such characters")

    check_names(shop, deployed, ['a"b', "a]b", "a[b", "a{queue_key}b", "a$rowpost_$b", "a--b", "a/*b*/c", "$(x)", ":x"])


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 200])
def test_a_name_that_cannot_be_is_refused(deployed, name):
    with pytest.raises(InvalidQueueName):
        create_queue(deployed, name)

    assert names(deployed) == ["Billing", "Sales"]


def test_a_queue_needs_a_deployed_database(database):
    with pytest.raises(SchemaMissing):
        create_queue(database, "New")

    assert not database.in_transaction


def test_a_queue_is_refused_by_a_newer_schema(deployed):
    deployed.call("record_version", schema_version=99, tool_version="9.9")

    with pytest.raises(SchemaTooNew):
        create_queue(deployed, "New")


def test_an_adopted_table_keeps_its_messages(shop, deployed, sql):
    create_queue(deployed, "Old")
    Queue("Old", deployed).send(b"kept")
    forget_queue(deployed, "Old")

    create_queue(deployed, "Old", kind="adopted")

    (message,) = Queue("Old", deployed).receive()
    assert message.body == b"kept"
    assert [row[5] for row in deployed.call("list_queues") if row[0] == "Old"] == ["adopted"]
    assert verify(deployed, shop.plan()) == []


def test_adopting_a_table_that_is_not_there_is_refused(deployed):
    with pytest.raises(DeployError, match="has no table"):
        create_queue(deployed, "Nothing", kind="adopted")

    assert names(deployed) == ["Billing", "Sales"]


def test_an_external_queue_can_be_sent_to_and_not_received_from(deployed, sql):
    create_queue(deployed, "Theirs")
    forget_queue(deployed, "Theirs")

    create_queue(deployed, "Theirs", kind="external")

    queue = Queue("Theirs", deployed)
    queue.send(b"x")
    assert len(sql.run(f"SELECT * FROM {sql.table('Theirs')}")) == 1
    with pytest.raises(QueueNotFound):
        queue.receive()


def test_an_error_queue_of_another_system_is_read_retried_and_discarded_from(deployed, sql):
    create_queue(deployed, "Theirs")
    forget_queue(deployed, "Theirs")
    create_queue(deployed, "Theirs", kind="external")
    address = deployed.canonical(parse_address("Sales"))
    for number in (b"1", b"2"):
        Queue("Theirs", deployed).send(
            number, {"NServiceBus.FailedQ": address, "NServiceBus.MessageId": number.decode()}
        )
    errors = ErrorQueue(deployed, "Theirs")

    first, second = errors.list()
    retried_to = errors.retry(first.row_version)
    errors.discard(second.row_version)

    assert (first.message_id, second.message_id, retried_to) == ("1", "2", "Sales")
    assert [message.body for message in Queue("Sales", deployed).browse(5)] == [b"1"]
    assert list(errors.list()) == []


def test_a_forgotten_queue_leaves_its_table_and_no_trace_in_the_journal(shop, deployed, sql):
    Queue("Billing", deployed).send(b"kept")

    forget_queue(deployed, "Billing")

    assert names(deployed) == ["Sales"]
    assert len(sql.run(f"SELECT * FROM {sql.table('Billing')}")) == 1
    assert not [row[0] for row in deployed.call("list_scripts") if row[0].endswith(":Billing")]
    assert {finding.subject for finding in verify(deployed, shop.plan()) if "Billing" not in finding.subject} == set()


def test_a_dropped_queue_takes_its_table_along(shop, deployed, sql):
    create_queue(deployed, "New")

    drop_queue(deployed, "New")

    assert names(deployed) == ["Billing", "Sales"]
    assert sql.columns("Sales") != {}
    with pytest.raises(DeployError, match="has no table"):
        create_queue(deployed, "New", kind="adopted")
    assert verify(deployed, shop.plan()) == []


def test_an_external_queue_is_never_dropped(deployed, sql):
    create_queue(deployed, "Theirs")
    forget_queue(deployed, "Theirs")
    create_queue(deployed, "Theirs", kind="external")

    with pytest.raises(DeployError, match="not ours to drop"):
        drop_queue(deployed, "Theirs")

    assert sql.run(f"SELECT * FROM {sql.table('Theirs')}") == []


@pytest.mark.parametrize("leave", [forget_queue, drop_queue])
def test_a_queue_that_nobody_registered_cannot_leave(deployed, leave):
    with pytest.raises(QueueNotFound, match="'Nothing'"):
        leave(deployed, "Nothing")


@pytest.mark.parametrize(
    ("engine", "role", "receive", "send"),
    [
        (
            "sqlserver",
            "ALTER ROLE rowpost_endpoint ADD MEMBER [shop]]x];",
            "GRANT EXECUTE ON rowpost.[receive_messages:Sales] TO [shop]]x];",
            "GRANT EXECUTE ON rowpost.[send_messages:error] TO [shop]]x];",
        ),
        (
            "postgresql",
            'GRANT rowpost_endpoint TO "shop]x";',
            'GRANT EXECUTE ON FUNCTION rowpost."receive_messages:Sales" TO "shop]x";',
            'GRANT EXECUTE ON FUNCTION rowpost."send_messages:error" TO "shop]x";',
        ),
    ],
)
def test_grants_are_spelt_for_the_engine_without_a_server(engine, role, receive, send):
    statements = grant_statements(
        Settings(engine=engine, roles="cluster"), "shop]x", receive_from=["Sales"], send_to=["error"]
    )

    assert statements[0] == role
    assert {receive, send} <= set(statements)
    assert not any("send_messages:Sales" in each or "receive_messages:error" in each for each in statements)
    assert not any("purge_queue" in each or "browse_messages" in each for each in statements)


def test_a_queue_that_is_purged_at_the_start_may_be_purged():
    statements = grant_statements(Settings(engine="postgresql", roles="cluster"), "shop", purge=["Sales"])

    assert statements[1:] == ['GRANT EXECUTE ON FUNCTION rowpost."purge_queue:Sales" TO "shop";']


def test_an_endpoint_may_do_what_it_was_granted_and_nothing_else(shop, deployed, login, sql):
    name = login.make("shop")

    granted = grant(deployed, name, receive_from=["Sales"], send_to=["Billing"], tables=shop.babelfish)

    with login.open(name) as endpoint:
        Queue("Billing", endpoint).send(b"x")
        assert Queue("Sales", endpoint).receive() == []
        for refused in (
            lambda: Queue("Billing", endpoint).receive(),
            lambda: Queue("Sales", endpoint).send(b"x"),
            lambda: Queue("Sales", endpoint).purge(),
        ):
            with pytest.raises(PermissionDenied):
                refused()
        with pytest.raises(PermissionDenied), endpoint.translated():
            table = "rowpost.journal" if shop.babelfish else sql.table("Sales")  # which chains no ownership
            endpoint.driver_connection.execute(f"SELECT COUNT(*) FROM {table}")
    assert granted == grant_statements(
        shop.settings, name, receive_from=["Sales"], send_to=["Billing"], tables=shop.babelfish
    )


def test_a_grant_for_a_queue_that_is_not_there_grants_nothing_at_all(deployed, login):
    name = login.make("shop")

    with pytest.raises(DeployError, match="statement 2"):
        grant(deployed, name, receive_from=["Nothing"])

    with login.open(name) as endpoint, pytest.raises(PermissionDenied):  # no member of the role either
        endpoint.call("renew_ownership", queue_name="Sales", seconds=1)
