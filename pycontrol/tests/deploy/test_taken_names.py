"""Names of queues, sagas and subscriptions under which something else stands already."""

from dataclasses import replace

import pytest

from rowpost.deploy.apply import apply, difference
from rowpost.deploy.plan import plan
from rowpost.deploy.queues import create_queue
from rowpost.deploy.taken import dotted
from rowpost.errors import DeployError, QueueNameConflict
from rowpost.settings.environment import QueueSettings
from rowpost.settings.saga import SagaSettings

BUSINESS = "CREATE TABLE {name} (id int NOT NULL PRIMARY KEY, customer int)"


def refused(database, planned, error=DeployError):
    """The words of plan and of apply, which are the same."""
    with pytest.raises(error) as at_plan:
        difference(database, planned)
    with pytest.raises(error) as at_apply:
        apply(database, planned)
    assert str(at_plan.value) == str(at_apply.value)
    return str(at_plan.value)


@pytest.mark.parametrize("kind", ["own", "adopted"])
@pytest.mark.parametrize("first", [True, False])
def test_a_business_table_with_a_queues_name_is_told_before_anything_changes(shop, database, sql, kind, first):
    if not first:
        apply(database, shop.plan())
    sql.run(BUSINESS.format(name=sql.table("Orders")))

    said = refused(database, shop.plan(QueueSettings("Orders", kind)))

    column = shop.spelt("seq", "RowVersion")
    assert "queue Orders" in said and "another table has that name, which has no column" in said and column in said
    assert "Give the queue" in said
    schemas = sql.run("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'rowpost'")
    assert first == (schemas[0][0] == 0)


def test_a_view_with_a_queues_name_is_told(shop, database, sql):
    sql.run(f"CREATE VIEW {sql.table('Orders')} AS SELECT 1 AS id")

    assert "a view has that name" in refused(database, shop.plan(QueueSettings("Orders")))


@pytest.mark.parametrize(
    ("definition", "what"),
    [
        (
            "CREATE TABLE {name} (id uuid, expires timestamp, headers text, body bytea, seq bigint) PARTITION BY HASH (id)",
            "a partitioned table",
        ),
        ("CREATE TABLE {name} PARTITION OF parent DEFAULT", "a partition of another table"),
        ("CREATE TABLE {name} (id uuid); ALTER TABLE {name} RENAME TO t; CREATE INDEX {short} ON t (id)", "an index"),
        ("CREATE FOREIGN TABLE {name} (id uuid) SERVER nowhere", "a foreign table"),
        ("CREATE SEQUENCE {name}", "a sequence"),
    ],
)
def test_each_thing_of_postgresql_that_cannot_be_a_queue_is_told_by_plan(shop, database, sql, definition, what):
    if shop.engine != "postgresql":
        pytest.skip("things of PostgreSQL")
    sql.run(
        "CREATE TABLE parent (id uuid, expires timestamp, headers text, body bytea, seq bigint) PARTITION BY LIST (id)"
    )
    sql.run("CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing")
    sql.run(definition.format(name=sql.table("Orders"), short='"Orders"'))

    assert f"{what} has that name" in refused(database, shop.plan(QueueSettings("Orders")))


@pytest.mark.parametrize(
    ("kind", "postgresql", "sqlserver"),
    [
        ("queue", {"id": "text"}, {"Id": "varchar(36)"}),
        ("queue", {"expires": "timestamptz"}, {"Expires": "varchar(30)"}),
        ("queue", {"headers": "json"}, {"Headers": "xml"}),
        ("queue", {"body": "text"}, {"Body": "nvarchar(max)"}),
        ("queue", {"seq": "uuid"}, {"RowVersion": "uniqueidentifier"}),
        ("delayed", {"due": "date"}, {"Due": "date"}),
        ("delayed", {"body": "text"}, {"Body": "nvarchar(max)"}),
        ("saga", {"Data": "text"}, {"Data": "varbinary(max)"}),
        ("subscriptions", {"topic": "integer"}, {"Topic": "int"}),
    ],
)
def test_a_column_of_a_type_that_holds_something_else_is_told_by_plan(shop, database, sql, kind, postgresql, sqlserver):
    wrong = shop.spelt(postgresql, sqlserver)
    names = {"queue": "Orders", "delayed": "Orders.Delayed", "saga": "Policy", "subscriptions": "Subscribers"}
    columns = {**_right(shop)[kind], **wrong}
    quote = sql.database.dialect.quote
    sql.run(
        f"CREATE TABLE {sql.table(names[kind])} ({', '.join(f'{quote(name)} {type_}' for name, type_ in columns.items())})"
    )
    settings = replace(
        shop.settings,
        queues=(QueueSettings("Orders", delayed=True),),
        sagas=(SagaSettings("Policy", "OrderId", "string"),),
        subscription_table="Subscribers",
        features=("delayed", "sagas"),
    )

    said = refused(database, plan(settings))

    assert (
        f"the column {next(iter(wrong))} of the table that is there is of the type {next(iter(wrong.values())).partition('(')[0][:4]}"
        in said
    )


def _right(shop):
    """The columns of each kind of table, as rowpost makes them."""
    text, number = shop.spelt("text", "nvarchar(max)"), shop.spelt("integer", "int")
    saga = {
        "Id": shop.spelt("uuid", "uniqueidentifier"),
        "Metadata": text,
        "Data": shop.spelt("jsonb", text),
        "Concurrency": number,
    }
    if shop.engine == "postgresql":
        message = {"headers": "text", "body": "bytea"}
        queue = {"id": "uuid", "expires": "timestamp", **message, "seq": "bigint GENERATED BY DEFAULT AS IDENTITY"}
        delayed, subscriptions = (
            {**message, "due": "timestamptz"},
            {"queueaddress": "text", "endpoint": "text", "topic": "text"},
        )
    else:
        message, order = {"Headers": text, "Body": "varbinary(max)"}, {"RowVersion": "bigint IDENTITY (1, 1)"}
        queue = {"Id": "uniqueidentifier", "Expires": "datetime", **message, **order}
        delayed = {**message, "Due": "datetime", **order}
        subscriptions = dict.fromkeys(("QueueAddress", "Endpoint", "Topic"), "nvarchar(200)")
    return {"queue": queue, "delayed": delayed, "saga": saga, "subscriptions": subscriptions}


def test_the_delayed_table_of_another_queue_is_no_queue(shop, database):
    both = shop.plan(QueueSettings("Sales"), QueueSettings("Sales.Delayed"))

    assert "queue Sales and the queue Sales.Delayed both want the table" in refused(database, both, QueueNameConflict)


def test_the_delayed_table_of_a_deployed_queue_is_told_to_one_who_creates_a_queue(shop, database):
    apply(database, shop.plan())

    for kind in ("own", "adopted"):
        with pytest.raises(DeployError, match=r"The queue Sales\.Delayed cannot have the table"):
            create_queue(database, "Sales.Delayed", kind=kind)


def test_a_table_that_no_insert_of_ours_would_fill_is_told_with_the_column(shop, database, sql):
    apply(database, shop.plan())
    create_queue(database, "Old")
    sql.run(f"ALTER TABLE {sql.table('Old')} ADD tenant int NOT NULL")
    sql.run("DELETE FROM rowpost.queue WHERE queue_key = 'Old'")
    sql.run("DELETE FROM rowpost.journal WHERE script_name LIKE '%:Old'")

    with pytest.raises(DeployError, match="does not allow a null in tenant"):
        create_queue(database, "Old", kind="adopted")


def test_a_saga_and_subscriptions_have_no_table_of_somebody_else(shop, database, sql):
    sql.run(BUSINESS.format(name=sql.table("Policy")))
    sql.run(BUSINESS.format(name=sql.table("Subscribers")))
    settings = replace(
        shop.settings,
        sagas=(SagaSettings("Policy", "OrderId", "string"),),
        subscription_table="Subscribers",
        features=("sagas",),
    )

    said = refused(database, plan(settings))

    assert "saga Policy cannot have the table" in said and "subscriptions Subscribers cannot have the table" in said


def test_a_dotted_table_of_subscriptions_that_begins_with_a_schema_is_told_with_the_spelling_that_was_meant(
    shop, database, sql
):
    settings = replace(shop.settings, subscription_table="nsb.SubscriptionRouting")
    apply(
        database, plan(replace(settings, subscription_table="other.SubscriptionRouting"))
    )  # no such schema: a name as any other
    sql.run(shop.spelt("CREATE SCHEMA nsb", "CREATE SCHEMA nsb AUTHORIZATION dbo"))

    said = refused(database, plan(settings))

    assert "subscription_table: SubscriptionRouting@[nsb]" in said


def test_a_dotted_queue_is_found_only_where_the_database_has_the_schema(shop, database, sql):
    sql.run(shop.spelt("CREATE SCHEMA nsb", "CREATE SCHEMA nsb AUTHORIZATION dbo"))
    queues = shop.plan(
        QueueSettings("nsb.Sales"), QueueSettings("Particular.ServiceControl"), QueueSettings("Billing")
    ).queues

    found = [(queue.name, meant.format()) for queue, meant in dotted(database, queues)]

    assert found == [("nsb.Sales", "Sales@[nsb]")]
