"""What a deployment meets on a bad day: killed at any statement, a journal that somebody tidied, names with quotes."""

from dataclasses import replace

import pytest

from rowpost.deploy import apply, difference
from rowpost.dialects.batches import BatchRunner
from rowpost.errors import DatabaseUnavailable, DeployError, PermissionDenied, RowpostError, SettingsError
from rowpost.queue import Queue
from rowpost.settings import QueueSettings, load_settings
from rowpost.verify import verify


class Killed(Exception):
    pass


def kill_at(monkeypatch, statement, connection):
    """Closes the connection, as a killed process does, right before the batch of that number."""
    run, count = BatchRunner._send, [0]

    def send(self, batch, text):
        count[0] += 1
        if count[0] == statement:
            connection.close()
            raise Killed
        return run(self, batch, text)

    monkeypatch.setattr(BatchRunner, "_send", send)
    return count


def test_a_deployment_killed_at_any_statement_leaves_nothing_and_can_be_run_again(shop, open_shop, monkeypatch, sql):
    if shop.engine == "sqlserver":
        pytest.skip("hundreds of deployments: on PostgreSQL, where one takes a tenth of a second")
    plan, statement, objects = shop.plan(QueueSettings("Sales")), 0, "SELECT count(*) FROM pg_namespace WHERE nspname = 'rowpost'"

    while True:
        statement += 1
        database = open_shop()
        with monkeypatch.context() as patch:
            kill_at(patch, statement, database.connection)
            try:
                apply(database, plan)
            except (Killed, RowpostError):
                sql.run("SELECT pg_advisory_xact_lock(hashtextextended('rowpost deployment', 0))")  # it has let go
                assert sql.value(objects) == 0
                continue
        break

    assert statement > len(plan.steps)
    assert verify(open_shop(), plan) == []


def test_a_row_of_the_journal_that_was_deleted_by_hand_is_told_and_comes_back(shop, database, sql):
    apply(database, shop.plan())
    names = ("tables/004_queue.sql", "procedures/queue/peek_queue.sql:Sales", "tables/queue/create.sql:Sales", "grants.sql")
    for name in names:
        sql.run("DELETE FROM rowpost.journal WHERE script_name = ?", name)
    Queue("Sales", database).send(b"kept")

    told = {finding.subject: finding.kind for finding in verify(database, shop.plan())}
    apply(database, shop.plan())

    assert set(told.values()) <= {"not_applied", "stranger"}
    assert len([kind for kind in told.values() if kind == "not_applied"]) == len(names)
    assert verify(database, shop.plan()) == []
    assert Queue("Sales", database).receive()[0].body == b"kept"


@pytest.mark.parametrize("schema", ["it's", 'dou"ble', "brack]et", "semi;colon --"])
def test_a_schema_with_a_quote_in_its_name_is_a_name(shop, database, sql, schema):
    sql.run(f"CREATE SCHEMA {database.dialect.quote(schema)}")
    name = f"Orders@[{schema.replace(']', ']]')}]"
    planned = shop.plan(QueueSettings(name))

    apply(database, planned)
    Queue(name, database).send(b"x")

    assert [message.body for message in Queue(name, database).receive()] == [b"x"]
    assert verify(database, planned) == []


def test_a_schema_that_does_not_exist_is_named_and_nothing_was_changed(shop, database):
    with pytest.raises(DeployError, match="nowhere"):
        apply(database, shop.plan(QueueSettings("Orders@[nowhere]")))

    assert not [change for change in difference(database, shop.plan()).changes if change.state == "unchanged"]


@pytest.mark.parametrize("name", ["nowhere", "nowhere.yml", "../nowhere", ""])
def test_an_environment_that_nobody_wrote_is_named(name, monkeypatch, tmp_path):
    monkeypatch.setenv("ROWPOST_ENVIRONMENTS", str(tmp_path))
    monkeypatch.setenv("ROWPOST_ENV", "nowhere")

    with pytest.raises(SettingsError, match="nowhere"):
        load_settings(name or None)


LACKING = {
    "to create schemas": ("REVOKE CREATE ON DATABASE {database} FROM {login}", "database"),
    "to create tables": ("REVOKE CREATE ON SCHEMA public FROM {login}", "schema public"),
    "to connect": ("REVOKE CONNECT ON DATABASE {database} FROM PUBLIC, {login}", "database"),
}


@pytest.mark.parametrize("right", LACKING)
def test_a_deploying_login_that_lacks_a_right_is_told_which_and_changes_nothing(shop, database, sql, right):
    if shop.engine == "sqlserver":
        pytest.skip("rights to deploy are tried on PostgreSQL; on SQL Server they stand in docs/for-dbas.md")
    login, name = "rowpost_test_lacking", sql.value("SELECT current_database()")
    sql.run(f"DROP ROLE IF EXISTS {login}")
    sql.run(f"CREATE ROLE {login} LOGIN PASSWORD 'x'")
    try:
        sql.run(f"GRANT ALL ON DATABASE {name} TO {login}")
        sql.run(f"GRANT ALL ON SCHEMA public TO {login}")
        sql.run("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        revoke, said = LACKING[right]
        sql.run(revoke.format(database=name, login=login))
        theirs = replace(shop, settings=replace(shop.settings, url=shop.settings.url.replace("postgres:@", f"{login}:x@", 1)))

        with pytest.raises((DeployError, PermissionDenied, DatabaseUnavailable), match=f"permission denied for {said}"):
            with theirs.connect() as connection:
                apply(connection, theirs.plan())

        assert sql.value("SELECT count(*) FROM pg_namespace WHERE nspname = 'rowpost'") == 0
    finally:
        sql.run(f"DROP OWNED BY {login}")
        sql.run(f"DROP ROLE {login}")
