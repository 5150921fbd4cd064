"""verify: every way in which a server can differ from the plan is found and named."""

import pytest

from rowpost.deploy.apply import apply
from rowpost.deploy.verify import verify
from rowpost.settings.environment import QueueSettings
from tests.support.workers import eventually


@pytest.fixture
def deployed(shop, database):
    """The shop's database with the environment deployed."""
    apply(database, shop.plan())
    return database


def findings(database, plan):
    return [(finding.kind, finding.subject) for finding in verify(database, plan)]


def name_of(shop, procedure):
    return shop.spelt(f'rowpost."{procedure}"', f"rowpost.[{procedure}]")


def test_what_was_just_deployed_is_clean(shop, deployed):
    assert verify(deployed, shop.plan()) == []


def test_a_database_without_rowpost_is_one_finding(shop, database):
    (finding,) = verify(database, shop.plan())

    assert (finding.kind, finding.remedy) == ("schema_missing", "rowpost apply")


def test_a_newer_schema_is_one_finding(shop, deployed):
    deployed.call("record_version", schema_version=99, tool_version="9.9")

    (finding,) = verify(deployed, shop.plan())

    assert finding.kind == "schema_newer"
    assert "99" in finding.detail


def test_a_script_that_has_not_run_is_found(shop, deployed, scripts, folder):
    (scripts / "tables" / "050_new.sql").write_text("SELECT 1;\n")
    (scripts / "procedures" / "registry" / "new.sql").write_text("SELECT 1;\n")

    assert findings(deployed, shop.plan(folder=folder)) == [
        ("not_applied", "tables/050_new.sql"),
        ("not_applied", "procedures/registry/new.sql"),
    ]


def test_a_script_that_ran_with_another_text_is_found(shop, deployed, folder, edit):
    for name in ("procedures/registry/unregister_queue.sql", "grants.sql"):
        edit(name, "", "\n-- newer\n")

    assert findings(deployed, shop.plan(folder=folder)) == [
        ("not_applied", "procedures/registry/unregister_queue.sql"),
        ("not_applied", "grants.sql"),
    ]


def test_a_script_that_ran_and_is_not_there_any_more_is_found(shop, deployed, scripts, folder):
    (scripts / "procedures" / "recoverability" / "forget_failure.sql").unlink()

    found = findings(deployed, shop.plan(folder=folder))

    assert found == [("script_missing", "procedures/recoverability/forget_failure.sql")]


def test_a_one_time_script_edited_after_it_ran_is_found(shop, deployed, folder, edit):
    edit("tables/003_version.sql", "", "-- edited\n")

    assert findings(deployed, shop.plan(folder=folder)) == [("script_edited", "tables/003_version.sql")]


def test_a_declared_queue_that_is_not_deployed_is_found(shop, deployed):
    found = findings(deployed, shop.plan(QueueSettings("Sales"), QueueSettings("New")))

    assert found[0] == ("not_applied", "queue New")
    assert {kind for kind, _ in found} == {"not_applied"}


def test_a_queue_registered_with_other_options_is_found(shop, deployed):
    found = findings(deployed, shop.plan(QueueSettings("Sales", body_string=True), QueueSettings("Billing")))

    assert ("queue_changed", "queue Sales") in found


def test_a_queue_made_by_command_is_no_finding(shop, deployed):
    assert verify(deployed, shop.plan(QueueSettings("Sales"))) == []


@pytest.mark.parametrize(
    "script_name", ["procedures/registry/list_queues.sql", "procedures/queue/peek_queue.sql:Sales"]
)
def test_a_procedure_changed_by_hand_is_found(shop, deployed, change_by_hand, script_name):
    change_by_hand(script_name)

    procedure = script_name.rpartition("/")[2].replace(".sql", "")
    assert findings(deployed, shop.plan()) == [("procedure_changed", name_of(shop, procedure))]


def test_a_procedure_dropped_by_hand_is_found(shop, deployed, sql):
    name = name_of(shop, "purge_queue:Sales")
    sql.run(f"DROP {shop.spelt('FUNCTION', 'PROCEDURE')} {name}")

    assert findings(deployed, shop.plan()) == [("object_gone", name)]


def test_a_table_dropped_by_hand_is_found_once(shop, deployed, sql):
    sql.run(f"DROP TABLE {sql.table('Sales')}")

    assert findings(deployed, shop.plan()) == [("object_gone", sql.table("Sales"))]


def test_each_column_altered_by_hand_is_named(shop, deployed, sql):
    table = sql.table("Sales")
    sql.run(f"ALTER TABLE {table} ADD note {shop.spelt('text', 'nvarchar(50)')} NULL")
    sql.run(
        f"ALTER TABLE {table} "
        + shop.spelt("ALTER COLUMN expires TYPE timestamp(3)", "ALTER COLUMN CorrelationId varchar(100)")
    )

    found = [finding for finding in verify(deployed, shop.plan()) if finding.kind == "table_altered"]

    assert {finding.subject for finding in found} == {table}
    details = " ".join(finding.detail for finding in found).lower()  # Babelfish keeps no case
    assert "the column note (" in details
    assert f"the column {shop.spelt('expires', 'correlationid')} was " in details


def test_a_column_of_our_own_tables_altered_by_hand_is_named(shop, deployed, sql):
    sql.run(f"ALTER TABLE rowpost.failure ADD note {shop.spelt('text', 'nvarchar(50)')} NULL")

    (finding,) = verify(deployed, shop.plan())

    assert (finding.kind, finding.subject) == ("table_altered", name_of(shop, "failure"))
    assert "note" in finding.detail


def test_a_column_that_is_gone_is_named_with_what_it_was(shop, deployed, sql):
    sql.run(f"ALTER TABLE {sql.table('Sales')} DROP COLUMN {shop.spelt('body', 'Body')}")

    (detail,) = [finding.detail for finding in verify(deployed, shop.plan()) if finding.kind == "table_altered"]

    assert detail.lower().startswith("the column body (")
    assert detail.endswith("is gone.")


@pytest.mark.parametrize("kind", ["table", "procedure"])
def test_an_unmanaged_object_in_the_schema_is_found(shop, deployed, sql, kind):
    statements = {
        "table": "CREATE TABLE rowpost.stranger (a int)",
        "procedure": shop.spelt(
            "CREATE FUNCTION rowpost.stranger() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "CREATE PROCEDURE rowpost.stranger AS SELECT 1",
        ),
    }
    sql.run(statements[kind])

    (finding,) = verify(deployed, shop.plan())

    assert (finding.kind, finding.subject) == ("unmanaged_object", "rowpost.stranger")
    assert kind in finding.detail


def test_a_missing_index_is_found_with_the_statement_that_mends_it(shop, deployed, sql):
    if shop.engine == "postgresql":
        (name,) = sql.run("SELECT indexname FROM pg_indexes WHERE tablename = 'Sales' AND indexdef LIKE '%(expires)%'")[
            0
        ]
        sql.run(f'DROP INDEX public."{name}"')
    else:
        sql.run("DROP INDEX Index_Expires ON dbo.Sales")

    (finding,) = verify(deployed, shop.plan())

    assert (finding.kind, finding.subject) == ("expires_index_missing", "queue Sales")
    assert finding.remedy.startswith("CREATE ")


def leave_dead_rows(sql, table):
    sql.run(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    sql.run(f"INSERT INTO {table} (id, headers) SELECT gen_random_uuid(), '' FROM generate_series(1, 12000)")
    sql.run(f"DELETE FROM {table}")


def test_the_session_that_keeps_dead_rows_is_named_with_what_ends_it(shop, database, folder, edit, open_shop, sql):
    if shop.engine == "sqlserver":
        pytest.skip("dead rows are PostgreSQL's")
    edit("procedures/registry/check_queue.sql", "interval '5 minutes'", "interval '0 minutes'")
    apply(database, shop.plan(folder=folder))
    holder = open_shop().driver_connection
    holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    holder.execute("SELECT FROM rowpost.queue")
    leave_dead_rows(sql, sql.table("Sales"))

    def remedies():
        return [row[3] for row in database.call("check_queue") if row[1] == "transaction_open"]

    end_it = f"SELECT pg_terminate_backend({holder.info.backend_pid});"
    eventually(lambda: end_it in remedies(), "the session is named")
    sql.run(end_it)
    eventually(lambda: end_it not in remedies(), "the session is gone")


def test_a_queues_health_is_for_check_queue_and_no_difference_from_the_plan(shop, deployed, sql):
    if shop.engine == "sqlserver":
        pytest.skip("dead rows are PostgreSQL's")
    leave_dead_rows(sql, sql.table("Sales"))

    eventually(
        lambda: [row[1] for row in deployed.call("check_queue")] == ["dead_rows"],
        "the statistics know of the dead rows",
    )

    assert verify(deployed, shop.plan()) == []


def test_settings_that_somebody_took_away_are_found(shop, deployed, sql):
    if shop.engine == "sqlserver":
        pytest.skip("settings of tables are PostgreSQL's")
    sql.run(f"ALTER TABLE {sql.table('Sales')} RESET (vacuum_truncate)")

    assert findings(deployed, shop.plan()) == [("settings_missing", "queue Sales")]
