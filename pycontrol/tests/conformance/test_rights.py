"""Least privilege, tried as each login: contract statements 9 and 10."""

import os

import pytest

from rowpost.database import connect_url
from rowpost.errors import DatabaseError, PermissionDenied
from rowpost.queue import Queue

PASSWORD = "Rights_9!test"


@pytest.fixture
def login(target, sql):
    """Makes logins without any right, and opens connections as them."""
    made = []

    def make(name: str):
        name = f"{name}_{os.getpid()}"
        if target.settings.engine == "sqlserver":
            sql.run(f"CREATE LOGIN {name} WITH PASSWORD = '{PASSWORD}'")
            sql.run(f"CREATE USER {name} FOR LOGIN {name}")
        else:
            sql.run(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
        made.append(name)
        return name

    def open_as(name: str):
        if target.settings.engine == "sqlserver":
            url = ";".join(p for p in target.url.split(";") if not p.lower().startswith(("uid=", "pwd=")))
            return connect_url("sqlserver", f"{url};UID={name};PWD={PASSWORD}")
        return connect_url("postgresql", target.url.replace("postgres:@", f"{name}:{PASSWORD}@", 1))

    yield make, open_as
    for name in made:
        if target.settings.engine == "sqlserver":
            sql.run(f"DROP USER {name}")
            sql.run(f"DROP LOGIN {name}")
        else:
            sql.run(f"DROP OWNED BY {name}")
            sql.run(f"DROP ROLE {name}")


def test_statement_9_an_endpoint_receives_and_sends_with_execute_alone_and_may_do_nothing_else(
    queue, target, sql, login
):
    from rowpost.registry import grant_statements

    make, open_as = login
    name = make("endpoint")
    for statement in grant_statements(target.settings, name, receive_from=["Sales"], send_to=["Billing"]):
        sql.run(statement)
    queue.send(b"work")

    with open_as(name) as database:
        own, destination = Queue("Sales", database), Queue("Billing", database)
        received = own.receive()
        destination.send(b"out")

        assert [message.body for message in received] == [b"work"]
        for refused in (
            lambda: destination.receive(),
            lambda: destination.browse(),
            lambda: own.purge(),
            lambda: Queue("error", database).send(b""),
            lambda: database.call("receive_messages", queue_name="Billing", count=1),
        ):
            with pytest.raises(PermissionDenied):
                refused()
        for statement in (
            f"SELECT * FROM {sql.table('Sales')}",
            f"DELETE FROM {sql.table('Sales')}",
            f"INSERT INTO {sql.table('Billing')} DEFAULT VALUES",
            "SELECT * FROM rowpost.queue",
            "CREATE TABLE made_by_endpoint (id int)",
            "DROP TABLE rowpost.journal",
        ):
            with pytest.raises(DatabaseError), database.translated():
                database.connection.execute(statement)
    assert sql.value(f"SELECT COUNT(*) FROM {sql.table('Billing')}") == 1
    sql.empty("Billing")


def test_a_login_without_any_right_is_told_so(queue, login):
    make, open_as = login
    name = make("nobody")

    with open_as(name) as database, pytest.raises((PermissionDenied, DatabaseError)) as caught:
        Queue("Sales", database).send(b"")

    assert "permission" in str(caught.value).lower() or "denied" in str(caught.value).lower()


def test_statement_10_the_deploying_login_needs_only_to_create_objects(target, new_database, login, sql):
    from rowpost.deploy import apply
    from rowpost.plan import plan
    from rowpost.settings import QueueSettings, Settings

    if target.settings.engine == "sqlserver":
        pytest.skip("tried on PostgreSQL here; on SQL Server the rights are documented in docs/for-dbas.md")
    make, open_as = login
    name = make("deployer")
    sql.run(f"GRANT CREATE ON DATABASE {sql.value('SELECT current_database()')} TO {name}")
    url = new_database(target.label)
    with connect_url("postgresql", url) as owner:
        database_name = owner.connection.execute("SELECT current_database()").fetchone()[0]
        owner.connection.execute(f"GRANT CREATE ON DATABASE {database_name} TO {name}")
        owner.connection.execute(f"GRANT CREATE, USAGE ON SCHEMA public TO {name}")
    deployer_url = url.replace("postgres:@", f"{name}:{PASSWORD}@", 1)

    with connect_url("postgresql", deployer_url) as database:
        apply(database, plan(Settings(url=deployer_url, queues=(QueueSettings("Sales"),))))
        Queue("Sales", database).send(b"x")

        assert Queue("Sales", database).peek() == 1
    with connect_url("postgresql", url) as owner:
        owner.connection.execute(f"DROP OWNED BY {name}")
