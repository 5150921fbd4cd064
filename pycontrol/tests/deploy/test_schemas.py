"""Schemas of queues, sagas and subscriptions: a deployment makes those that are missing, and drops none."""

from dataclasses import replace

import pytest

from rowpost.deploy.apply import apply, difference
from rowpost.deploy.grants import grant, grant_role
from rowpost.deploy.plan import plan
from rowpost.deploy.plan_files import plan_files
from rowpost.deploy.queues import create_queue, drop_queue
from rowpost.deploy.review import read_definition, review
from rowpost.deploy.verify import verify
from rowpost.errors import DeployError
from rowpost.settings.environment import QueueSettings, SagaSettings, load_settings
from rowpost.transport.queue import Queue

NAME = "tables/schema/create.sql:queues"


@pytest.fixture
def planned(shop, tmp_path):
    """The plan of an environment's file with a default schema of its own."""
    path = tmp_path / "shop.yml"
    path.write_text(
        f'engine: {shop.engine}\nurl: "{shop.settings.url}"\ndefault_schema: queues\n'
        "features: [spark]\nqueues: {Sales: {}, error: {delayed: false}}\n"
    )
    return plan(load_settings(path))


def found_in(shop, database, planned):
    """What verify finds; on Babelfish dbo's role owns dbo, so that no two schemas have one owner."""
    return [each for each in verify(database, planned) if not (shop.babelfish and each.kind == "owner_differs")]


def test_the_default_schema_is_made_and_shown_by_the_plan(shop, database, sql, planned):
    before = difference(database, planned)
    shown = {
        item.name: (item.state, item.purpose) for item in review(before, shop.engine, read_definition(database)).items
    }

    first = apply(database, planned)
    second = apply(database, planned)
    Queue("Sales@[queues]", database).send(b"x")

    assert shown[NAME] == ("added", "The schema of queues, sagas or subscriptions.")
    assert NAME in first.applied
    assert second.applied == ()
    assert found_in(shop, database, planned) == []
    assert [message.body for message in Queue("Sales@[queues]", database).receive()] == [b"x"]
    if shop.engine == "sqlserver":
        owner = "SELECT USER_NAME(s.principal_id) FROM sys.schemas AS s WHERE s.name = N'queues'"
        assert shop.babelfish or sql.value(owner) == "dbo"


def test_a_schema_that_is_there_stays_as_it_is(shop, database, sql, planned):
    sql.run("CREATE SCHEMA queues")

    apply(database, planned)

    assert found_in(shop, database, planned) == []
    assert Queue("Sales@[queues]", database).peek(1) == 0


def test_each_schema_of_own_tables_is_made_and_none_of_tables_that_others_make(shop, database):
    settings = replace(
        shop.settings,
        queues=(QueueSettings("Sales@[one]"), QueueSettings("Legacy@[others]", "external")),
        sagas=(SagaSettings("Policy@[two]", "Key"),),
        subscription_table="Subscribers@[three]",
    )

    made = {
        step.object_name
        for step in plan(settings).steps
        if step.object_kind == "schema" and step.object_name != shop.spelt('"public"', "")
    }
    apply(database, plan(settings))

    assert made == {database.dialect.quote(name) for name in ("one", "two", "three")}
    assert [each.subject for each in found_in(shop, database, plan(settings))] == ["queue Legacy@[others]"]


def test_a_queue_that_is_created_alone_gets_its_schema(shop, database):
    apply(database, shop.plan())

    create_queue(database, "Orders@[later]")
    Queue("Orders@[later]", database).send(b"x")

    assert Queue("Orders@[later]", database).peek(5) == 1
    assert found_in(shop, database, shop.plan()) == []


def test_the_schema_stays_after_its_last_queue_and_nothing_is_missing_then(shop, database, sql):
    apply(database, shop.plan())
    create_queue(database, "queues@[queues]")
    create_queue(database, "queues")

    for name in ("queues@[queues]", "queues"):
        drop_queue(database, name)

    assert found_in(shop, database, shop.plan()) == []
    assert sql.value("SELECT COUNT(*) FROM rowpost.journal WHERE script_name = ?", NAME) == 1
    create_queue(database, "queues@[queues]")
    assert found_in(shop, database, shop.plan()) == []


def test_a_schema_that_was_dropped_by_hand_is_named_and_made_again(shop, database, sql, planned):
    apply(database, planned)
    if shop.engine == "postgresql":
        sql.run("DROP SCHEMA queues CASCADE")
    else:
        for table in ("Sales", "[Sales.Delayed]", "error", "SubscriptionRouting"):
            sql.run(f"DROP TABLE queues.{table}")
        sql.run("DROP SCHEMA queues")

    found = {each.subject: (each.kind, each.remedy) for each in verify(database, planned)}
    apply(database, planned)

    assert found[database.dialect.quote("queues")] == ("object_gone", "rowpost apply")
    assert found_in(shop, database, planned) == []


def test_a_schema_without_a_row_of_the_journal_is_named(shop, database, sql, planned):
    apply(database, planned)
    sql.run("DELETE FROM rowpost.journal WHERE script_name = ?", NAME)

    assert ("not_applied", NAME) in {(each.kind, each.subject) for each in verify(database, planned)}


def test_a_login_that_may_make_no_schema_is_told_what_to_do_and_nothing_is_changed(shop, database, sql, login):
    if shop.engine == "sqlserver":
        pytest.skip("whoever may deploy there may make schemas: apply needs CONTROL of the database")
    name, here = login.make("lacking"), sql.value("SELECT current_database()")
    sql.run(f"GRANT CREATE ON DATABASE {here} TO {name}")
    sql.run(f"GRANT CREATE, USAGE ON SCHEMA public TO {name}")
    with login.open(name) as theirs:
        apply(theirs, shop.plan())
    sql.run(f"REVOKE CREATE ON DATABASE {here} FROM {name}")
    before = sql.run("SELECT * FROM rowpost.journal ORDER BY script_name")

    with login.open(name) as theirs, pytest.raises(DeployError) as refused:
        create_queue(theirs, "Orders@[queues]")

    said = str(refused.value)
    assert f"CREATE SCHEMA queues AUTHORIZATION {name}; or name a schema that exists" in said
    assert NAME in said
    assert sql.run("SELECT * FROM rowpost.journal ORDER BY script_name") == before


def test_a_database_without_the_schema_public_gets_it(shop, database, sql):
    if shop.engine == "sqlserver":
        pytest.skip("dbo cannot be dropped")
    sql.run("DROP SCHEMA public")

    apply(database, shop.plan())

    assert verify(database, shop.plan()) == []


def test_the_files_of_a_plan_make_the_schema_with_what_the_queues_share(planned):
    files = plan_files(planned)

    assert [each.purpose for each in files if f"{NAME} (" in each.text] == ["shared objects"]


def test_a_login_with_rights_on_tables_reaches_them_in_a_schema_that_a_deployment_made(
    shop, database, sql, login, planned
):
    apply(database, planned)
    name = login.make("nservicebus")
    grant(database, name, send_to=["Sales@[queues]"], tables=True)
    table = sql.table("Sales@[queues]")

    with login.open(name) as theirs:
        counted = theirs.driver_connection.execute(f"SELECT COUNT(*) FROM {table}").fetchall()

    assert [tuple(row) for row in counted] == [(0,)]


@pytest.mark.parametrize("role", ["rowpost_operator", "rowpost_body_reader"])
def test_the_roles_reach_a_table_in_a_schema_that_a_deployment_made(shop, database, sql, login, planned, role):
    apply(database, planned)
    queue = Queue("Sales@[queues]", database)
    queue.send(b"x")
    name = login.make("reads")
    sql.run(grant_role(database.dialect, role, name))

    with login.open(name) as theirs:
        read = theirs.call("read_range", queue.name, above=0, upto=1000)

    assert [row[6] for row in read] == [b"x"]
