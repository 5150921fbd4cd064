"""Least privilege, tried as each login: contract statements 9 and 10."""

import os

import pytest

from rowpost.contract import load_contract
from rowpost.database import connect_url
from rowpost.dialects.grants import grant_role
from rowpost.errors import DatabaseError, PermissionDenied, RowpostError
from rowpost.message import OutgoingMessage
from rowpost.pipeline import Pipeline
from rowpost.queue import Queue
from rowpost.registry import grant_statements
from rowpost.retries import Kind
from tests.sagas import Open, deploy, make_desk, make_endpoint, make_ledger

__all__ = ["make_desk"]

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


#: what a member of each role may call, by the contract's scope and side; an endpoint's queues are granted one by one
ALLOWED = {
    "rowpost_reader": {("queue", "read"), ("database", "read")},
    "rowpost_operator": {
        (scope, side) for scope in ("queue", "database") for side in ("send", "receive", "read", "operate")
    },
    "rowpost_endpoint": {("database", side) for side in ("send", "receive", "read")},
}
#: procedures of the registry that look at other queues' messages or at the deployment: not for endpoints, not for readers
EXCEPTIONS = {"rowpost_endpoint": {"list_scripts", "list_strangers", "get_definition"}}
ALSO = {"rowpost_reader": {"peek_queue"}}
FORBIDDEN = (
    "SELECT * FROM {sales}", "INSERT INTO {sales} DEFAULT VALUES", "DELETE FROM {sales}", "UPDATE {sales} SET {headers} = ''",
    "DROP TABLE {sales}", "ALTER TABLE {sales} ADD extra integer", "SELECT * FROM rowpost.queue", "SELECT * FROM rowpost.failure",
    "DELETE FROM rowpost.journal", "UPDATE rowpost.version SET tool_version = 'x'", "DROP TABLE rowpost.journal",
    "CREATE TABLE rowpost.mine (id integer)", "CREATE TABLE mine (id integer)", "DROP {procedure} rowpost.get_version",
)  # fmt: skip


def _arguments(procedure):
    """Something for every parameter that the driver can pass: rights are checked before values."""
    values = {"messages": [OutgoingMessage(b"")], "strings": ["topic"]}
    return {p.name: values[p.type] for p in procedure.parameters if p.type in values}


def _refused(database, procedure):
    """Whether calling it is refused for want of a right; whatever it does is undone."""
    queue = "Sales" if procedure.scope == "queue" else None
    try:
        with database.transaction():
            database.call(procedure.name, queue, **_arguments(procedure))
            raise _UndoneError
    except PermissionDenied:
        return True
    except (_UndoneError, RowpostError):
        return False


class _UndoneError(Exception):
    pass


@pytest.mark.parametrize("role", ALLOWED)
def test_a_member_of_a_role_may_call_what_the_role_is_for_and_nothing_else(queue, target, sql, login, role):
    make, open_as = login
    name = make("member")
    sql.run(grant_role(sql.database.dialect, role, name))
    wrong = []

    with open_as(name) as database:
        for procedure in load_contract().procedures:
            allowed = (procedure.scope, procedure.side) in ALLOWED[role] and procedure.name not in EXCEPTIONS.get(role, ())
            allowed |= procedure.name in ALSO.get(role, ()) and procedure.scope == "queue"
            if _refused(database, procedure) == allowed:
                wrong.append((procedure.scope, procedure.name, "refused" if allowed else "allowed"))

    if target.babelfish:
        wrong = [each for each in wrong if each[2] == "allowed"]  # what it lacks it is given by its own grants
    assert wrong == []


@pytest.mark.parametrize("role", [*ALLOWED, None])
def test_no_role_reaches_a_table_or_makes_or_drops_anything(queue, target, sql, login, role):
    make, open_as = login
    name = make("member")
    if role:
        sql.run(grant_role(sql.database.dialect, role, name))
    names = {
        "sales": sql.table("Sales"),
        "headers": "Headers" if target.settings.engine == "sqlserver" else "headers",
        "procedure": "PROCEDURE" if target.settings.engine == "sqlserver" else "FUNCTION",
    }
    went_through = []

    with open_as(name) as database:
        for statement in FORBIDDEN:
            try:
                with database.translated():
                    database.connection.execute(statement.format(**names))
            except RowpostError:
                continue
            went_through.append(statement)

    assert went_through == []


def test_the_rights_of_the_seeds_model_let_plain_sql_work_and_are_given_only_when_asked_for(queue, target, sql, login):
    make, open_as = login
    name = make("plain")
    without = grant_statements(target.settings, name, receive_from=["Sales"])
    with_tables = grant_statements(target.settings, name, receive_from=["Sales"], tables=True)
    for statement in with_tables:
        sql.run(statement)
    if target.settings.engine == "postgresql":
        sql.run(f"GRANT USAGE ON SCHEMA public TO {name}")

    with open_as(name) as database:
        database.connection.execute(f"DELETE FROM {sql.table('Sales')}")
        with pytest.raises(RowpostError), database.translated():
            database.connection.execute(f"DELETE FROM {sql.table('Billing')}")

    assert set(with_tables) - set(without) == {with_tables[-1]}


def test_a_missing_right_is_named_with_its_object(queue, target, sql, login):
    make, open_as = login
    name = make("partly")
    for statement in grant_statements(target.settings, name, send_to=["Billing"]):
        sql.run(statement)

    with open_as(name) as database:
        for missing in ("send_message", "peek_queue", "browse_messages", "purge_queue", "maintain_queue", "queue_metrics"):
            with pytest.raises(PermissionDenied) as caught:
                database.call(missing, "Sales")
            assert f"{missing}:Sales".casefold() in str(caught.value).casefold()
            assert "queue grant" in str(caught.value)


def test_statement_9_an_endpoint_keeps_its_sagas_with_execute_alone_and_no_others(target, sql, login, make_desk):
    make, open_as = login
    desk = make_desk()
    other = make_ledger("pessimistic", "Ledger_of_others")
    deploy(target, make_endpoint(other))
    name = make("saga_keeper")
    for statement in grant_statements(desk.database, name, receive_from=["Sales"], send_to=["audit", "error"], sagas=[desk.table]):
        sql.run(statement)
    desk.send(Open("A", 5))

    with open_as(name) as database:
        outcome = Pipeline(database, "Sales", desk.endpoint).process_one()

        assert (outcome.kind, [row[2]["Total"] for row in desk.rows]) == (Kind.HANDLED, [5])
        for table in ("Ledger_of_others", desk.table):
            with pytest.raises(DatabaseError), database.translated():
                database.connection.execute(f"SELECT * FROM {sql.table(table)}")
        with pytest.raises(PermissionDenied):
            database.call("load_saga", "Ledger_of_others", correlation_value="A", locked=False, lock_timeout_ms=100)
