"""What a deployment meets on a bad day: killed at any statement, a journal that somebody tidied, names with quotes."""

import time
from dataclasses import replace
from itertools import count

import pytest

from rowpost.deploy.apply import apply, difference
from rowpost.deploy.queues import create_queue
from rowpost.deploy.runner import BatchRunner
from rowpost.deploy.scripts import load_scripts
from rowpost.deploy.verify import verify
from rowpost.errors import DatabaseUnavailable, DeployError, PermissionDenied, SettingsError
from rowpost.settings.environment import QueueSettings, load_settings
from rowpost.transport.queue import Queue

#: Every seventh statement of a whole deployment. What one of them leaves in the database is there at the next ones too.
STEP = 7


def kill(sql, database):
    """Ends a session on the server, and waits until it is gone with its locks."""
    if database.engine == "postgresql":
        session = database.driver_connection.info.backend_pid
        command, there = "SELECT pg_terminate_backend(?)", "SELECT count(*) FROM pg_stat_activity WHERE pid = ?"
        sql.run(command, session)
    else:
        session = database.dialect.script(database.driver_connection, "SELECT @@SPID;")[0][0]
        there = "SELECT COUNT(*) FROM sys.dm_exec_sessions WHERE session_id = ?"
        sql.run(f"KILL {session}")
    deadline = time.monotonic() + 20
    while sql.value(there, session):
        assert time.monotonic() < deadline


def killed_at_each_statement(open_shop, monkeypatch, sql, deploy, is_untouched, step=1):
    """Kills a deployment before its first statement, its second, and so on, until one gets through; returns how many."""
    run = BatchRunner._send
    for statement in count(1, step):
        database, left = open_shop(), count(statement - 1, -1)

        def send(self, batch, text, database=database, left=left):
            if next(left) == 0:
                kill(sql, database)
            return run(self, batch, text)

        with monkeypatch.context() as patch:
            patch.setattr(BatchRunner, "_send", send)
            try:
                deploy(database)
            except DatabaseUnavailable:
                assert is_untouched()
                database.close()
            else:
                return statement


def test_a_deployment_killed_at_any_statement_leaves_nothing_and_can_be_run_again(shop, open_shop, monkeypatch, sql):
    if shop.engine == "sqlserver":
        pytest.skip("hundreds of deployments: on PostgreSQL, where one takes a tenth of a second")
    plan = shop.plan(QueueSettings("Sales"))

    def is_untouched():
        return sql.value("SELECT count(*) FROM pg_namespace WHERE nspname = 'rowpost'") == 0

    killed = killed_at_each_statement(open_shop, monkeypatch, sql, lambda each: apply(each, plan), is_untouched, STEP)

    assert killed > len(plan.steps)
    assert verify(open_shop(), plan) == []


def test_a_queue_whose_deployment_is_killed_at_any_statement_is_not_there(shop, database, open_shop, monkeypatch, sql):
    apply(database, shop.plan())
    scripts = [row[0] for row in database.call("list_scripts")]

    def is_untouched():
        names = [row[0] for row in database.call("list_queues")]
        return names == ["Billing", "Sales"] and [row[0] for row in database.call("list_scripts")] == scripts

    step = 10 if shop.babelfish else 3  # there a deployment takes many seconds
    killed = killed_at_each_statement(
        open_shop, monkeypatch, sql, lambda each: create_queue(each, "New"), is_untouched, step
    )

    assert killed > len(load_scripts(shop.engine).queue.procedures)
    assert verify(open_shop(), shop.plan()) == []


def test_a_row_of_the_journal_that_was_deleted_by_hand_is_told_and_comes_back(shop, database, sql):
    apply(database, shop.plan())
    names = (
        "tables/004_queue.sql",
        "procedures/queue/peek_queue.sql:Sales",
        "tables/queue/create.sql:Sales",
        "grants.sql",
    )
    for name in names:
        sql.run("DELETE FROM rowpost.journal WHERE script_name = ?", name)
    Queue("Sales", database).send(b"kept")

    told = {finding.subject: finding.kind for finding in verify(database, shop.plan())}
    apply(database, shop.plan())

    assert set(told.values()) <= {"not_applied", "unmanaged_object"}
    assert len([kind for kind in told.values() if kind == "not_applied"]) == len(names)
    assert verify(database, shop.plan()) == []
    assert Queue("Sales", database).receive()[0].body == b"kept"


@pytest.mark.parametrize("schema", ["it's", 'dou"ble', "brack]et", "semi;colon --"])
def test_a_schema_with_a_quote_in_its_name_is_a_name(shop, database, schema):
    if shop.babelfish and set(schema) & set("'\"]"):
        pytest.skip("Babelfish's QUOTENAME doubles apostrophes, and its parser takes no quotes and brackets in names")
    name = f"Orders@[{schema.replace(']', ']]')}]"
    planned = shop.plan(QueueSettings(name))

    apply(database, planned)
    Queue(name, database).send(b"x")

    assert [message.body for message in Queue(name, database).receive()] == [b"x"]
    # Babelfish: the role db_owner owns the schema dbo, so that no two schemas have the owner dbo
    assert [
        found for found in verify(database, planned) if not (shop.babelfish and found.kind == "owner_differs")
    ] == []


def test_a_table_to_adopt_in_a_schema_that_does_not_exist_is_named_and_nothing_was_changed(shop, database):
    with pytest.raises(DeployError, match="nowhere"):
        apply(database, shop.plan(QueueSettings("Orders@[nowhere]", "adopted")))

    assert not [change for change in difference(database, shop.plan()).changes if change.state == "unchanged"]


@pytest.mark.parametrize("name", ["nowhere", "nowhere.yml", "../nowhere", ""])
def test_an_environment_that_nobody_wrote_is_named(name, monkeypatch, tmp_path):
    monkeypatch.setenv("ROWPOST_ENVIRONMENTS", str(tmp_path))
    monkeypatch.setenv("ROWPOST_ENV", "nowhere")

    with pytest.raises(SettingsError, match="nowhere"):
        load_settings(name or None)


LACKING = {
    "postgresql": {
        "to create schemas": ("REVOKE CREATE ON DATABASE {database} FROM {login}", "for database"),
        "to create tables": ("REVOKE CREATE ON SCHEMA public FROM {login}", "for schema public"),
        "to connect": ("REVOKE CONNECT ON DATABASE {database} FROM PUBLIC, {login}", "for database"),
    },
    "sqlserver": {
        "to create schemas": ("REVOKE CREATE SCHEMA FROM {login}", ""),
        "to create roles": ("REVOKE CREATE ROLE FROM {login}", ""),
        "to create tables": ("REVOKE CREATE TABLE FROM {login}", ""),
        "to create procedures": ("REVOKE CREATE PROCEDURE FROM {login}", ""),
        "to create functions": ("REVOKE CREATE FUNCTION FROM {login}", ""),
        "on the queues' schema": ("REVOKE ALTER ON SCHEMA::dbo FROM {login}", ""),
    },
}
ALL_RIGHTS = {
    "postgresql": (
        "GRANT ALL ON DATABASE {database} TO {login}", "GRANT ALL ON SCHEMA public TO {login}",
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
    ),
    "sqlserver": (
        "GRANT CREATE SCHEMA, CREATE ROLE, CREATE TABLE, CREATE PROCEDURE, CREATE FUNCTION, VIEW DEFINITION TO {login}",
        "GRANT ALTER ON SCHEMA::dbo TO {login}",
    ),
}  # fmt: skip


def test_a_deploying_login_that_lacks_a_right_is_told_which_and_changes_nothing(shop, database, sql, login):
    if shop.babelfish:
        pytest.skip("Babelfish grants no rights on a database: there a login has all or none")
    name = login.make("lacking")
    theirs = replace(shop, settings=replace(shop.settings, url=login.url(name)))

    for revoke, said in LACKING[shop.engine].values():
        for statement in (*ALL_RIGHTS[shop.engine], revoke):
            sql.run(statement.format(database=database.dialect.database_name(database.driver_connection), login=name))
        with pytest.raises((DeployError, PermissionDenied, DatabaseUnavailable), match=f"(?i)permission.*{said}"):
            with theirs.connect() as connection:
                apply(connection, theirs.plan())

        assert not [change for change in difference(database, shop.plan()).changes if change.state == "unchanged"]


def test_a_login_that_may_not_deploy_at_all_is_told_where_the_rights_stand_and_changes_nothing(shop, database, login):
    name = login.make("nobody")

    with login.open(name) as connection, pytest.raises(DeployError, match=r"permission.*docs/for-dbas\.md"):
        apply(connection, shop.plan())

    assert not [change for change in difference(database, shop.plan()).changes if change.state == "unchanged"]


def test_a_case_sensitive_database_is_served(shop, sql, open_shop):
    if shop.engine == "postgresql":
        pytest.skip("PostgreSQL is case-sensitive always")
    if shop.babelfish:
        pytest.skip("Babelfish has one collation for the names of a whole server")
    sql.run(f"ALTER DATABASE {sql.value('SELECT DB_NAME()')} COLLATE Latin1_General_CS_AS")
    database = open_shop()

    apply(database, shop.plan())
    Queue("Sales", database).send(b"x", {"a": "b"})

    assert [message.body for message in Queue("Sales", database).receive()] == [b"x"]
    assert database.call("check_queue") == []
    assert verify(database, shop.plan()) == []
