"""Procedures of registry, publish-subscribe, decisions and journal, called by themselves: as sql/tests, on every engine.

Everything happens in a transaction that is rolled back.
"""

import json
import re
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from rowpost.database.contract import load_contract
from rowpost.errors import (
    DatabaseError,
    InvalidCount,
    InvalidMessage,
    InvalidQueueName,
    InvalidSubscription,
    InvalidTimeToBeReceived,
    LockRefused,
    NotAQueueTable,
    QueueNameConflict,
    QueueNotFound,
    SchemaTooNew,
    ScriptEdited,
)
from rowpost.transport.queue import Queue

HASH, OTHER_HASH = "a" * 64, "b" * 64


@pytest.fixture
def database(open_database, sql):
    """A connection in a transaction that ends with the test, undone; Billing is empty."""
    sql.empty("Billing")
    opened = open_database()
    opened.begin()
    yield opened
    opened.rollback()


def entry(name, **changed):
    return {
        "queue_key": name, "queue_name": name, "schema_name": "app", "table_name": name,
        "kind": "own", "body_string": False, "clustered": True, "delayed": False, **changed,
    }  # fmt: skip


def registered(database):
    return {row[0]: row for row in database.call("list_queues")}


# ---------------------------------------------------------------------------------------------- registry
def test_a_queue_is_entered_as_given_and_its_options_renewed(database):
    database.call("register_queue", **entry("New"))
    database.call("register_queue", **entry("New", kind="adopted", body_string=True, delayed=True))

    assert [*registered(database)["New"]][:9] == ["New", "New", None, "app", "New", "adopted", True, True, True]


def test_an_entry_that_is_right_is_not_written_again(database, sql):
    if database.engine != "postgresql":
        pytest.skip("reads the version of a row, which SQL Server does not have")
    version = "SELECT xmin, ctid FROM rowpost.queue WHERE queue_key = %s"
    database.call("register_queue", **entry("New"))
    written = database.driver_connection.execute(version, ["New"]).fetchone()

    database.call("register_queue", **entry("New"))

    assert database.driver_connection.execute(version, ["New"]).fetchone() == written


@pytest.mark.parametrize(
    "changed", [{"queue_name": "Other"}, {"queue_name": "Other", "queue_key": "Other"}], ids=["key", "table"]
)
def test_another_queue_of_the_same_key_or_table_is_refused(database, changed):
    database.call("register_queue", **entry("New"))

    with pytest.raises(QueueNameConflict):
        database.call("register_queue", **entry("New", **changed))


def test_queues_of_the_same_table_name_in_two_schemas_are_two(database):
    database.call("register_queue", **entry("New"))
    database.call("register_queue", **entry("eu.New", schema_name="eu", table_name="New"))

    assert {"New", "eu.New"} <= registered(database).keys()


@pytest.mark.parametrize("missing", ["queue_key", "queue_name", "table_name"])
def test_a_queue_without_key_name_or_table_is_refused(database, missing):
    with pytest.raises(InvalidQueueName):
        database.call("register_queue", **entry("New", **{missing: ""}))


def test_a_kind_that_is_none_is_refused(database):
    with pytest.raises(DatabaseError, match="check"):
        database.call("register_queue", **entry("New", kind="theirs"))


def test_an_unregistered_queue_is_gone_with_its_failures_and_keeps_its_messages(database):
    row_id = uuid4()
    Queue("Billing", database).send(b"kept")
    database.call("record_failure", queue_key="Billing", id=row_id)

    database.call("unregister_queue", queue_name="Billing")

    assert "Billing" not in registered(database)
    assert database.call("record_failure", queue_key="Billing", id=row_id) == [(1,)]
    assert Queue("Billing", database).peek() == 1


def test_what_is_not_registered_cannot_be_unregistered_or_leased(database):
    for call in (
        lambda: database.call("unregister_queue", queue_name="Nowhere"),
        lambda: database.call("renew_ownership", queue_name="Nowhere", seconds=10),
    ):
        with pytest.raises(QueueNotFound), database.transaction():
            call()


@pytest.mark.parametrize("seconds", [None, 0, -1, 86_401])
def test_a_lease_lasts_from_a_second_to_a_day(database, seconds):
    with pytest.raises(InvalidCount):
        database.call("renew_ownership", queue_name="Sales", seconds=seconds)


def test_a_queue_has_one_lease_that_ends_the_given_seconds_from_now_and_is_orphaned_then(database):
    database.call("renew_ownership", queue_name="Sales", seconds=10)
    database.call("renew_ownership", queue_name="Sales", seconds=600)

    alive = database.call("check_queue", queue_name="Sales")
    text = "UPDATE rowpost.queue_ownership SET ends_at = '2024-01-01' WHERE queue_key = 'Sales'"
    database.dialect.script(database.driver_connection, text)
    lapsed = database.call("check_queue", queue_name="Sales")

    assert alive == []
    assert [(row[1], row[3]) for row in lapsed] == [("orphaned", "rowpost queue drop Sales")]


@pytest.mark.parametrize(("typed", "told"), [("cafe\u0301", True), ("Cafe\u0301", True), ("Tea", False)])
def test_a_name_that_looks_like_a_registered_one_is_told_with_it(database, typed, told, not_on_babelfish):
    not_on_babelfish("its collations compare otherwise")
    database.call("register_queue", **entry("Caf\u00e9"))

    with pytest.raises(QueueNotFound) as error:
        database.call("check_queue", queue_name=typed)

    assert ("There is a queue 'Caf\u00e9', whose name differs" in str(error.value)) == told


@pytest.mark.parametrize(
    ("kind", "delayed", "lease"), [("own", True, True), ("own", False, False), ("external", False, False)]
)
def test_check_queue_names_every_template_of_the_contract_that_a_queue_lacks(database, kind, delayed, lease):
    database.call("register_queue", **entry("Bare", kind=kind, delayed=delayed, lease=lease))

    missing = [row[2] for row in database.call("check_queue", queue_name="Bare") if row[1] == "procedure_missing"]

    templates = load_contract().templates(kind, delayed, lease=lease)
    assert sorted(missing) == sorted(f"The procedure {each.name} of this queue is missing." for each in templates)


def test_check_queue_names_an_enabled_trigger_and_its_remedy_mends_it(make_queue, target, sql):
    if target.settings.engine == "postgresql":
        pytest.skip("PostgreSQL returns rows of a table with triggers")
    queue = make_queue()
    sql.run(f"CREATE TRIGGER watched ON {sql.table(queue.name)} AFTER INSERT AS SELECT 1")

    found = sql.database.call("check_queue", queue_name=queue.name)

    assert [row.finding for row in found] == ["trigger_enabled"]
    if target.babelfish:
        pytest.skip("Babelfish has no ALTER TABLE … DISABLE TRIGGER: the finding was checked, its remedy was not")
    sql.run(found[0].remedy)
    assert sql.database.call("check_queue", queue_name=queue.name) == []


# ---------------------------------------------------------------------------------------------- send_unregistered
def test_an_unregistered_table_is_sent_to_as_any_other(database, target):
    place = {"schema_name": target.settings.default_schema, "table_name": "Billing"}
    row_id = uuid4()

    database.call(
        "send_unregistered", **place, headers='{"a":"b"}', body=b"x", id=row_id, time_to_be_received_ms=60_000
    )

    (message,) = Queue("Billing", database).receive(10)
    assert (message.id, message.raw_headers, message.body, message.expired) == (row_id, '{"a":"b"}', b"x", False)


@pytest.mark.parametrize("table", ["Nowhere", "Billing'; DROP TABLE rowpost.queue; --", None])
def test_an_unregistered_table_that_is_not_there_is_refused(database, target, table):
    with pytest.raises(QueueNotFound):
        database.call("send_unregistered", schema_name=target.settings.default_schema, table_name=table, headers="")


def test_an_unregistered_table_that_is_no_queue_is_refused(database):
    with pytest.raises(NotAQueueTable):
        database.call("send_unregistered", schema_name="rowpost", table_name="journal", headers="")


def test_an_unregistered_table_takes_no_time_to_be_received_of_zero(database, target):
    with pytest.raises(InvalidTimeToBeReceived):
        database.call(
            "send_unregistered",
            schema_name=target.settings.default_schema,
            table_name="Billing",
            headers="",
            time_to_be_received_ms=0,
        )


# ---------------------------------------------------------------------------------------------- publish, subscribe
def subscribe(database, endpoint, topic, queue_address):
    database.call("subscribe", endpoint=endpoint, topic=topic, queue_address=queue_address)


def subscriptions(database):
    return [tuple(row) for row in database.call("list_subscriptions")]


def test_one_row_for_each_endpoint_and_topic_and_a_new_address_moves_it(database):
    before = subscriptions(database)

    subscribe(database, "Billing", "Shop.OrderPlaced", "Old")
    subscribe(database, "Billing", "Shop.OrderPlaced", "Billing")
    subscribe(database, "Billing", "Shop.OrderShipped", "Billing")
    subscribe(database, "Sales", "Shop.OrderPlaced", "Sales")

    assert set(subscriptions(database)) - set(before) == {
        ("Shop.OrderPlaced", "Billing", "Billing"), ("Shop.OrderShipped", "Billing", "Billing"), ("Shop.OrderPlaced", "Sales", "Sales"),
    }  # fmt: skip


@pytest.mark.parametrize(
    "wrong", [("", "t", "q"), ("e", "", "q"), ("e", "t", ""), (None, "t", "q"), ("e", None, "q"), ("e", "t", None)]
)
def test_a_subscription_without_endpoint_topic_or_queue_is_refused(database, wrong):
    with pytest.raises(InvalidSubscription):
        subscribe(database, *wrong)


@pytest.mark.parametrize("place", range(3))
def test_a_subscription_longer_than_its_columns_is_refused_and_not_cut(database, place):
    given = ["Long", "Shop.Long", "Billing"]
    given[place] = "x" * 201

    with pytest.raises(InvalidSubscription):
        subscribe(database, *given)


@pytest.mark.parametrize("place", ["publisher", "endpoint", "topic", "queue_address"])
def test_a_subscription_that_is_taken_with_a_value_of_201_characters_is_refused(database, place):
    given = {"publisher": "Sales", "endpoint": "Taken", "topic": "Shop.Taken", "queue_address": "Taken", "ends": False}

    with pytest.raises(InvalidSubscription):
        database.call("take_subscription", **{**given, place: "x" * 201})


def test_unsubscribing_from_a_topic_that_is_too_long_leaves_the_one_of_its_first_200_characters(database):
    subscribe(database, "Unsubscribing long", "x" * 200, "Billing")

    database.call("unsubscribe", endpoint="Unsubscribing long", topic="x" * 201)

    assert [row[0] for row in subscriptions(database) if row[1] == "Unsubscribing long"] == ["x" * 200]


def test_unsubscribing_ends_that_one_subscription_and_a_second_time_nothing(database):
    for topic in ("Shop.OrderPlaced", "Shop.OrderShipped"):
        subscribe(database, "Unsubscribing", topic, "Billing")

    for _ in range(2):
        database.call("unsubscribe", endpoint="Unsubscribing", topic="Shop.OrderPlaced")

    assert [row[0] for row in subscriptions(database) if row[1] == "Unsubscribing"] == ["Shop.OrderShipped"]


def test_an_event_reaches_a_queue_once_however_often_it_is_subscribed_and_no_other(database, queue):
    for endpoint, topic, address in (
        ("Sales", "Shop.OrderPlaced", "Sales"), ("Sales", "Shop.IEvent", "Sales"),
        ("Billing", "Shop.Other", "Billing"), ("Far", "Shop.IEvent", "Far@[away]"),
    ):  # fmt: skip
        subscribe(database, endpoint, topic, address)

    rows = database.call("publish_message", topics=["Shop.OrderPlaced", "Shop.IEvent"], headers='{"a":"b"}', body=b"x")

    assert [(address, bool(stored)) for address, stored in rows] == [("Far@[away]", False), ("Sales", True)]
    assert [(m.raw_headers, m.body) for m in Queue("Sales", database).receive(10)] == [('{"a":"b"}', b"x")]
    assert Queue("Billing", database).peek() == 0


def test_each_copy_of_an_event_expires_after_its_time_to_be_received(database, queue):
    subscribe(database, "Sales", "Shop.Expiring", "Sales")

    for time_ms in (60_000, None):
        database.call(
            "publish_message", topics=["Shop.Expiring"], headers="{}", body=b"x", time_to_be_received_ms=time_ms
        )

    there = Queue("Sales", database).browse(10)
    now = datetime.now(UTC).replace(tzinfo=None)
    assert [
        None if each.expires is None else round((each.expires.replace(tzinfo=None) - now).total_seconds(), -1)
        for each in there
    ] == [60, None]
    with pytest.raises(InvalidTimeToBeReceived):
        database.call("publish_message", topics=["Shop.Expiring"], headers="{}", time_to_be_received_ms=0)


# ---------------------------------------------------------------------------------------------- decisions
def test_a_decision_stands_until_it_is_forgotten(database, sql):
    names = json.dumps(["shop", "it's"])

    for each in ("tx-1", "tx-2"):
        database.call("record_decision", queue_key="Sales", transaction_id=each, participants=names)
    database.call("forget_decision", transaction_id="tx-1")
    database.call("forget_decision", transaction_id="tx-1")

    ((transaction_id, participants, queue_key, decided_at),) = database.call("list_decisions")
    assert (transaction_id, participants, queue_key) == ("tx-2", names, "Sales")
    assert abs(sql.utc_now().replace(tzinfo=None) - decided_at) < timedelta(minutes=1)


@pytest.mark.parametrize(
    "again", [{"transaction_id": "tx-1", "participants": "[]"}, {"transaction_id": "tx-2", "participants": None}]
)
def test_a_transaction_is_decided_once_and_names_its_participants(database, again):
    database.call("record_decision", queue_key="Sales", transaction_id="tx-1", participants="[]")

    with pytest.raises((DatabaseError, InvalidMessage)):
        database.call("record_decision", queue_key="Sales", **again)


def test_a_transaction_is_seen_to_run_until_it_ends_and_its_lock_is_refused_to_a_second_one(database, open_database):
    other, watcher = open_database(), open_database()
    other.dialect.script(
        other.driver_connection,
        "SET lock_timeout = '50ms';" if other.engine == "postgresql" else "SET LOCK_TIMEOUT 50;",
    )

    def runs():
        return bool(watcher.call("probe_transaction", transaction_id="tx-1")[0][0])

    before = runs()
    database.call("record_decision", queue_key="Sales", transaction_id="tx-1", participants="[]")
    during = runs()
    with pytest.raises(LockRefused), other.transaction():
        other.call("record_decision", queue_key="Sales", transaction_id="tx-1", participants="[]")
    database.rollback()

    assert (before, during, runs()) == (False, True, False)
    database.begin()


# ---------------------------------------------------------------------------------------------- journal
def record(database, name, kind="anytime", script_hash=HASH, **what):
    database.call("record_script", script_name=name, script_kind=kind, script_hash=script_hash, **what)


def journal(database):
    return {row[0]: row for row in database.call("list_scripts")}


def test_what_ran_stands_in_the_journal_once_with_the_fingerprint_of_its_object(database):
    object_name = "rowpost.get_version"

    record(database, "x.sql", object_kind="procedure", object_name=object_name)
    record(database, "x.sql", script_hash=OTHER_HASH, object_kind="procedure", object_name=object_name)

    _, kind, script_hash, object_kind, name, recorded, living, applied_at, applied_by = journal(database)["x.sql"]
    assert (kind, script_hash, object_kind, name) == ("anytime", OTHER_HASH, "procedure", object_name)
    assert recorded == living
    assert re.fullmatch("[0-9a-f]{64}", recorded)
    assert applied_at
    assert applied_by


def test_the_fingerprint_of_a_table_lists_its_columns_and_of_what_is_not_there_is_none(database):
    record(database, "x.sql", object_kind="table", object_name="rowpost.queue_ownership")
    record(database, "y.sql", object_kind="table", object_name="rowpost.nowhere")

    found = journal(database)
    assert [line.partition(" ")[0] for line in found["x.sql"][6].splitlines()] == ["queue_key", "ends_at"]
    assert found["y.sql"][5:7] == (None, None)


def test_the_fingerprint_of_a_schema_says_that_it_is_there(database):
    record(database, "x.sql", object_kind="schema", object_name=database.dialect.quote("rowpost"))
    record(database, "y.sql", object_kind="schema", object_name=database.dialect.quote('now"he]re.x'))

    found = journal(database)
    assert found["x.sql"][5:7] == ("schema", "schema")
    assert found["y.sql"][5:7] == (None, None)


def test_a_script_of_once_may_run_again_as_it_was_and_not_as_another(database):
    record(database, "x.sql", "once")
    record(database, "x.sql", "once")

    with pytest.raises(ScriptEdited):
        record(database, "x.sql", "once", OTHER_HASH)


def test_a_forgotten_script_alone_leaves_the_journal_and_its_object_is_unmanaged(database):
    name = next(name for name in journal(database) if name == "procedures/deploy/get_version.sql")
    before = database.call("list_unmanaged_objects")

    database.call("forget_script", script_name=name)
    database.call("forget_script", script_name="no such script")

    assert name not in journal(database)
    assert "procedures/deploy/list_scripts.sql" in journal(database)
    assert [row for row in database.call("list_unmanaged_objects") if row not in before] == [
        ("procedure", "rowpost.get_version")
    ]


def test_the_text_of_a_procedure_of_ours_is_shown_and_of_nothing_else(database):
    shown = database.call("get_definition", object_name="rowpost.get_version")
    hidden = [
        database.call("get_definition", object_name=name)
        for name in ("rowpost.[nothing'; DROP TABLE rowpost.queue]", "pg_catalog.lower", "sys.sp_who")
    ]

    assert "Returns which schema is deployed" in shown[0][0]
    assert hidden == [[], [], []]


def test_versions_go_up_and_another_release_of_the_same_schema_is_taken(database):
    (schema, *_) = database.call("get_version")[0]

    database.call("record_version", schema_version=schema, tool_version="9.8")
    database.call("record_version", schema_version=schema + 1, tool_version="9.9")

    newest = database.call("get_version")[0]
    assert tuple(newest[:2]) == (schema + 1, "9.9")
    assert newest[3]
    with pytest.raises(SchemaTooNew):
        database.call("record_version", schema_version=schema, tool_version="9.7")


def test_a_copy_for_a_subscriber_is_stored_in_its_table(database, target):
    place = {"schema_name": target.settings.default_schema, "table_name": "Billing"}
    otherwise = {"otherwise_queue": "nowhere", "otherwise_headers": ""}

    ((stored,),) = database.call(
        "send_to_subscriber", **place, headers='{"a":"b"}', body=b"x", time_to_be_received_ms=60_000, **otherwise
    )

    assert stored
    assert [(m.raw_headers, m.body, m.expired) for m in Queue("Billing", database).receive(10)] == [
        ('{"a":"b"}', b"x", False)
    ]


def test_a_copy_for_a_subscriber_whose_table_is_gone_goes_to_the_other_queue(database, target, sql):
    sql.empty("error")
    place = {"schema_name": target.settings.default_schema, "table_name": "nowhere"}
    otherwise = {"otherwise_queue": "error", "otherwise_headers": '{"why":"gone"}'}

    ((stored,),) = database.call(
        "send_to_subscriber", **place, headers="{}", body=b"x", time_to_be_received_ms=60_000, **otherwise
    )

    assert not stored
    assert [(m.raw_headers, m.body, m.expired) for m in Queue("error", database).receive(10)] == [
        ('{"why":"gone"}', b"x", False)
    ]


@pytest.mark.parametrize("otherwise_queue", ["nowhere either", None])
def test_a_copy_for_a_subscriber_whose_table_is_gone_is_refused_without_another_queue(
    database, target, otherwise_queue
):
    place = {"schema_name": target.settings.default_schema, "table_name": "nowhere"}

    with pytest.raises(QueueNotFound, match=otherwise_queue or "nowhere"):
        database.call(
            "send_to_subscriber", **place, headers="{}", otherwise_queue=otherwise_queue, otherwise_headers="{}"
        )
