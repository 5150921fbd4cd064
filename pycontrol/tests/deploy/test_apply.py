"""apply: all or nothing, once, whoever else deploys at the same time."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from rowpost.database.dialects.sqlserver import checks as sqlserver_checks
from rowpost.deploy import apply as apply_module
from rowpost.deploy import deployment as deployment_module
from rowpost.deploy.apply import apply, difference
from rowpost.deploy.deployment import deployment
from rowpost.deploy.queues import create_queue
from rowpost.deploy.state import read_state
from rowpost.deploy.verify import verify
from rowpost.errors import DeployError, LockRefused, SchemaMissing, SchemaTooNew, ScriptEdited, UnsupportedServer
from rowpost.settings.environment import QueueSettings
from tests.support.babelfish import adapted_by_rowpost
from tests.support.fork_server import FORK_SERVER

BREAKS = {
    "postgresql": (
        "-- breaks\nCREATE TABLE rowpost.half (a integer);\n\nSELECT 1 AS one,\n       nothing\nFROM rowpost.half;\n"
    ),
    "sqlserver": "-- breaks\nCREATE TABLE rowpost.half (a int);\nGO\n\nDECLARE @zero int = 0;\nSELECT 1 / @zero;\nGO\n",
}
BREAKS_ON = {"postgresql": "batch 2, line 5", "sqlserver": "batch 2, line 6"}


def at_once(count, work):
    """Runs work(0), work(1), … in threads that start together; returns the results."""
    barrier = Barrier(count)

    def run(number):
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def is_untouched(database, shop):
    diff = difference(database, shop.plan())
    return len(diff.names("added")) + len(diff.names("everytime")) == len(diff.changes)


def test_a_fresh_database_gets_everything_and_a_second_apply_finds_nothing_to_do(shop, database):
    first = apply(database, shop.plan())
    second = apply(database, shop.plan())

    assert set(first.applied) == {c.name for c in difference(database, shop.plan()).changes if c.state != "everytime"}
    assert (second.applied, second.unchanged) == ((), len(first.applied))
    assert verify(database, shop.plan()) == []


def test_progress_names_each_item_before_it_runs(shop, database):
    seen = []

    result = apply(database, shop.plan(), lambda number, total, name: seen.append((number, total, name)))

    assert [number for number, _, _ in seen] == list(range(1, len(seen) + 1))
    assert {total for _, total, _ in seen} == {len(seen)}
    assert set(result.applied) <= {name for _, _, name in seen}


def test_a_changed_procedure_is_the_only_thing_that_runs(shop, database, folder, edit):
    apply(database, shop.plan())
    edit("procedures/queue/peek_queue.sql", "/*\n", "/*\nBetter.\n")

    result = apply(database, shop.plan(folder=folder))

    assert result.applied == ("procedures/queue/peek_queue.sql:Sales", "procedures/queue/peek_queue.sql:Billing")
    assert verify(database, shop.plan(folder=folder)) == []


def test_a_new_one_time_script_runs_once_and_raises_the_schema_version(shop, database, scripts, folder, sql):
    apply(database, shop.plan())
    text = shop.spelt(
        "ALTER TABLE rowpost.failure ADD COLUMN IF NOT EXISTS note text NULL;\n",
        "IF COL_LENGTH(N'rowpost.failure', N'note') IS NULL\n    ALTER TABLE rowpost.failure ADD note nvarchar(50) NULL;\nGO\n",
    )
    (scripts / "tables" / "050_note.sql").write_text(text)
    newer = shop.plan(folder=folder)

    first, second = apply(database, newer), apply(database, newer)

    assert (first.applied, second.applied) == (("tables/050_note.sql",), ())
    assert sql.run("SELECT note FROM rowpost.failure") == []
    assert database.call("get_version")[0][0] == 50
    assert verify(database, newer) == []


def test_a_queue_that_is_no_longer_declared_is_named_kept_and_deployed_like_the_others(shop, database, folder, edit):
    apply(database, shop.plan())
    edit("procedures/queue/peek_queue.sql", "/*\n", "/*\nBetter.\n")

    result = apply(database, shop.plan(QueueSettings("Sales"), folder=folder))

    assert result.undeclared == ("Billing",)
    assert "procedures/queue/peek_queue.sql:Billing" in result.applied
    assert [row[0] for row in database.call("list_queues")] == ["Billing", "Sales"]


def test_a_procedure_that_was_changed_or_dropped_by_hand_is_made_again(shop, database, change_by_hand, sql):
    apply(database, shop.plan())
    change_by_hand("procedures/queue/peek_queue.sql:Sales")
    sql.run(shop.spelt('DROP FUNCTION rowpost."purge_queue:Sales"', "DROP PROCEDURE rowpost.[purge_queue:Sales]"))

    result = apply(database, shop.plan())

    assert result.applied == ("procedures/queue/peek_queue.sql:Sales", "procedures/queue/purge_queue.sql:Sales")
    assert verify(database, shop.plan()) == []


def test_a_table_that_was_altered_by_hand_is_named_and_left_alone(shop, database, sql):
    apply(database, shop.plan())
    sql.run(f"ALTER TABLE {sql.table('Sales')} ADD {shop.spelt('note text', 'note nvarchar(50)')} NULL")

    result = apply(database, shop.plan())

    assert (result.applied, result.altered) == ((), ("tables/queue/create.sql:Sales",))
    assert [finding.kind for finding in verify(database, shop.plan())] == ["table_altered"]


def test_an_option_that_is_switched_on_reaches_the_table(shop, database, sql):
    apply(database, shop.plan())

    result = apply(database, shop.plan(QueueSettings("Sales", body_string=True), QueueSettings("Billing")))

    assert result.applied == ("queue Sales", "tables/queue/create.sql:Sales", "tables/queue/create_delayed.sql:Sales")
    assert "bodystring" in {column.lower() for column in sql.columns("Sales")}
    assert verify(database, shop.plan(QueueSettings("Sales", body_string=True))) == []


def test_an_adopted_queue_without_a_table_is_refused_and_nothing_was_changed(shop, database):
    with pytest.raises(DeployError, match=r"'Billin'.*no table .*Billin"):
        apply(database, shop.plan(QueueSettings("Sales"), QueueSettings("Billin", "adopted")))

    assert is_untouched(database, shop)


def test_a_failing_script_is_named_with_batch_and_line_and_nothing_was_changed(shop, database, scripts, folder):
    (scripts / "tables" / "050_breaks.sql").write_text(BREAKS[shop.engine])

    with pytest.raises(DeployError, match=rf"tables/050_breaks\.sql: {BREAKS_ON[shop.engine]}: .*Nothing was changed"):
        apply(database, shop.plan(folder=folder))

    assert is_untouched(database, shop)
    assert not database.in_transaction


def test_a_failing_script_leaves_an_earlier_deployment_as_it_was(shop, database, scripts, folder):
    apply(database, shop.plan())
    (scripts / "tables" / "050_breaks.sql").write_text(BREAKS[shop.engine])

    with pytest.raises(DeployError):
        apply(database, shop.plan(QueueSettings("Sales"), QueueSettings("New"), folder=folder))

    assert verify(database, shop.plan()) == []


def test_a_template_that_does_not_compile_is_named_with_its_queue(shop, database, scripts, folder):
    path = scripts / "procedures" / "queue" / "peek_queue.sql"
    text = path.read_text()
    broken = text.replace(shop.spelt("RETURN QUERY", "SELECT"), "SELEC T", 1)
    path.write_text(broken)

    with pytest.raises(DeployError) as caught:
        apply(database, shop.plan(folder=folder))

    assert str(caught.value).startswith("procedures/queue/peek_queue.sql:Sales: batch ")
    if not shop.babelfish:  # its syntax errors escape TRY/CATCH, and with them the line
        assert f"line {broken[: broken.index('SELEC T')].count(chr(10)) + 1}:" in str(caught.value)


def test_an_error_inside_an_anonymous_block_is_told_with_the_line_in_the_file(shop, database, scripts, folder):
    if shop.engine == "sqlserver":
        pytest.skip("T-SQL has no anonymous blocks: its batches are covered above")
    text = "-- breaks\n\nDO $rowpost$\nBEGIN\n    PERFORM 1;\n    PERFORM 1 / 0;\nEND\n$rowpost$;\n"
    (scripts / "tables" / "050_breaks.sql").write_text(text)

    with pytest.raises(DeployError, match="batch 1, line 6: division by zero"):
        apply(database, shop.plan(folder=folder))


def test_a_deployment_killed_half_way_leaves_nothing(shop, database):
    code = (
        "import sys\n"
        "from rowpost.database.connection import connect_url\n"
        "from rowpost.deploy.apply import apply\n"
        "from rowpost.deploy.plan import plan\n"
        "from rowpost.settings.environment import QueueSettings, Settings\n"
        "from tests.support import babelfish\n"
        "babelfish.install()\n"
        "engine, url, schema = sys.argv[1:]\n"
        "queues = (QueueSettings('Sales'), QueueSettings('Billing'))\n"
        "def stop(number, total, name):\n"
        "    if number > total // 2:\n"
        "        print('half-way', flush=True)\n"
        "        sys.stdin.read()\n"
        "settings = Settings(engine=engine, url=url, default_schema=schema, queues=queues)\n"
        "apply(connect_url(engine, url), plan(settings), stop)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = (shop.engine, shop.settings.url, shop.settings.default_schema)
    with FORK_SERVER.start(
        ["-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout.readline() == "half-way\n"

        process.kill()

    assert is_untouched(database, shop)
    assert len(apply(database, shop.plan()).applied) > 0
    assert verify(database, shop.plan()) == []


def test_two_deployments_at_once_do_the_work_once(shop, open_shop):
    connections = [open_shop(), open_shop()]

    results = at_once(2, lambda number: apply(connections[number], shop.plan()))

    assert sorted(bool(result.applied) for result in results) == [False, True]
    assert verify(connections[0], shop.plan()) == []


@pytest.mark.promise("deploy-is-idempotent")
def test_eight_parallel_deployments_of_one_queue_make_it_once(shop, database, open_shop, sql):
    apply(database, shop.plan())
    connections = [open_shop() for _ in range(8)]

    results = at_once(8, lambda number: create_queue(connections[number], "New"))

    assert sorted(bool(result.applied) for result in results) == [False] * 7 + [True]
    assert sql.run(f"SELECT * FROM {sql.table('New')}") == []
    assert [row[0] for row in database.call("list_queues")] == ["Billing", "New", "Sales"]
    assert verify(database, shop.plan()) == []


@pytest.mark.promise("deploy-is-idempotent")
def test_eight_parallel_deployments_of_an_empty_database_do_the_work_once(shop, open_shop):
    connections = [open_shop() for _ in range(8)]

    results = at_once(8, lambda number: apply(connections[number], shop.plan()))

    assert sorted(bool(result.applied) for result in results) == [False] * 7 + [True]
    assert verify(connections[0], shop.plan()) == []


def test_a_newer_schema_is_refused(shop, database):
    apply(database, shop.plan())
    database.call("record_version", schema_version=99, tool_version="9.9")

    with pytest.raises(SchemaTooNew, match=r"schema 99, deployed by rowpost 9\.9"):
        apply(database, shop.plan(QueueSettings("New")))

    assert [row[0] for row in database.call("list_queues")] == ["Billing", "Sales"]


def test_a_one_time_script_that_was_edited_after_it_ran_is_refused(shop, database, folder, edit):
    apply(database, shop.plan())
    edit("tables/003_version.sql", "", "-- edited\n")

    with pytest.raises(ScriptEdited, match=r"tables/003_version\.sql"):
        apply(database, shop.plan(QueueSettings("New"), folder=folder))

    assert verify(database, shop.plan()) == []


def test_a_connection_with_a_transaction_of_its_own_is_refused(shop, database):
    database.begin()

    with pytest.raises(DeployError, match="connection of its own"):
        apply(database, shop.plan())

    database.rollback()


def test_the_lock_is_free_again_after_a_failure(shop, open_shop):
    first, second = open_shop(), open_shop()
    with pytest.raises(ZeroDivisionError), deployment(first, shop.plan().scripts):
        raise ZeroDivisionError

    assert apply(second, shop.plan()).applied


def test_a_deployment_whose_lock_is_refused_is_told_so_by_number_and_changes_nothing(shop, open_shop, folder, edit):
    if shop.engine == "sqlserver":
        edit("begin.sql", "@LockTimeout = -1", "@LockTimeout = 0")
    first, second = open_shop(), open_shop()
    if shop.engine == "postgresql":
        second.driver_connection.execute("SET lock_timeout = '50ms'")

    with deployment(first, shop.plan().scripts), pytest.raises(LockRefused) as caught:
        apply(second, shop.plan(folder=folder))

    assert caught.value.code == 12
    assert not second.in_transaction
    assert is_untouched(first, shop)


def test_a_function_of_an_earlier_release_that_returned_less_makes_room(shop, database, sql):
    """PostgreSQL replaces no function by one of another result; its script and the queue's were others then."""
    if database.engine != "postgresql":
        pytest.skip("a procedure of SQL Server is altered whatever it returns")
    apply(database, shop.plan())
    sql.run('DROP FUNCTION rowpost."watch_queue:Sales"')
    sql.run(
        'CREATE FUNCTION rowpost."watch_queue:Sales"(p_count integer, p_wake_up_ttl_ms integer DEFAULT NULL)'
        " RETURNS TABLE (waiting integer) LANGUAGE sql AS 'SELECT 1'"
    )
    sql.run(
        "UPDATE rowpost.journal SET script_hash = 'another' WHERE script_name LIKE '%create.sql:Sales' OR script_name LIKE '%watch_queue.sql:Sales'"
    )

    apply(database, shop.plan())

    assert database.call("watch_queue", "Sales", count=10) == [(0, None, False, None, None, None)]
    assert verify(database, shop.plan()) == []


def test_babelfish_is_refused(shop, database, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(deployment_module, "is_babelfish", lambda _: True)
        patch.setattr(apply_module, "adapted", adapted_by_rowpost)
        with pytest.raises(DeployError, match="The server is Babelfish, which rowpost does not support"):
            apply(database, shop.plan())

    assert is_untouched(database, shop)


def test_a_database_of_an_old_compatibility_level_is_refused_before_anything_changes(shop, database, monkeypatch):
    if shop.engine == "postgresql":
        pytest.skip("PostgreSQL has no compatibility levels")
    with monkeypatch.context() as patch:
        if shop.babelfish:  # it says 120, and is exempt
            patch.setattr(deployment_module, "is_babelfish", lambda _: False)
            patch.setattr(apply_module, "adapted", adapted_by_rowpost)
            level = "SELECT CAST(d.compatibility_level AS int) FROM sys.databases AS d WHERE d.name = DB_NAME();"
            patch.setattr(sqlserver_checks, "COMPATIBILITY", level)
        else:
            database.driver_connection.execute("ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = 120")
        for command in (apply, difference):
            with pytest.raises(UnsupportedServer, match=r"compatibility level 120, and rowpost needs 130"):
                command(database, shop.plan())
        checks = {check.name: check for check in database.dialect.checks(database.driver_connection, ["dbo"])}

    assert checks["compatibility level"].state == "bad"
    with pytest.raises(SchemaMissing):
        read_state(database)


#: other parameters than today, also without a default where today has one more
EARLIER = {
    "list_supervisors": ("control", "", "boolean LANGUAGE sql AS 'SELECT true'"),
    "send_unregistered": (
        "registry",
        "text, text, text, bytea DEFAULT NULL, uuid DEFAULT NULL, bigint DEFAULT NULL, text DEFAULT NULL, text DEFAULT NULL",
        "boolean LANGUAGE sql AS 'SELECT true'",
    ),
    "publish_message": (
        "pubsub",
        "text[], text, bytea DEFAULT NULL",
        "TABLE (queue_address text, stored boolean) LANGUAGE sql AS 'SELECT NULL, true'",
    ),
}


ROLE = "rowpost's reader"


def test_a_function_with_another_result_makes_way_and_its_roles_may_execute_the_new_one(shop, database, sql):
    if shop.engine != "postgresql":
        pytest.skip("SQL Server's ALTER replaces a procedure, whatever it returns")
    apply(database, shop.plan())
    sql.run(f'DROP ROLE IF EXISTS "{ROLE}"')
    sql.run(f'CREATE ROLE "{ROLE}"')
    named = "SELECT p.oid::regprocedure::text FROM pg_proc AS p WHERE p.proname LIKE 'describe_stream:%' ORDER BY 1"
    functions = [row[0] for row in sql.run(named)]
    for function in functions:
        sql.run(f"DROP FUNCTION {function}")
        sql.run(f"CREATE FUNCTION {function} RETURNS boolean LANGUAGE sql AS 'SELECT true'")
        sql.run(f'GRANT EXECUTE ON FUNCTION {function} TO "{ROLE}"')
    sql.run("UPDATE rowpost.journal SET script_hash = '' WHERE script_name LIKE '%/describe_stream.sql:%'")

    apply(database, shop.plan())

    assert functions and [row[0] for row in sql.run(named)] == functions
    assert all(sql.value("SELECT has_function_privilege(?, ?, 'EXECUTE')", ROLE, function) for function in functions)
    assert verify(database, shop.plan()) == []
    sql.run(f'DROP OWNED BY "{ROLE}"')
    sql.run(f'DROP ROLE "{ROLE}"')


@pytest.mark.parametrize("name", EARLIER)
def test_a_function_of_an_earlier_text_with_other_parameters_makes_way(shop, database, sql, name):
    if shop.engine != "postgresql":
        pytest.skip("SQL Server's ALTER replaces a procedure, whatever its parameters")
    folder, parameters, rest = EARLIER[name]
    named = f"SELECT p.oid::regprocedure::text FROM pg_proc AS p WHERE p.proname = '{name}'"
    apply(database, shop.plan())
    new = sql.value(named)
    sql.run(f"DROP FUNCTION {new}")
    sql.run(f"CREATE FUNCTION rowpost.{name}({parameters}) RETURNS {rest}")
    sql.run(f"UPDATE rowpost.journal SET script_hash = '' WHERE script_name = 'procedures/{folder}/{name}.sql'")

    apply(database, shop.plan())

    assert sql.run(named) == [(new,)]
    assert verify(database, shop.plan()) == []
