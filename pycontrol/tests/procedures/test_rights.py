"""The least privileges that each login needs, tested with that login."""

import time
from dataclasses import replace

import pytest

from rowpost.database.connection import connect_url
from rowpost.database.contract import load_contract
from rowpost.deploy.apply import apply
from rowpost.deploy.grants import grant, grant_role, grant_statements
from rowpost.deploy.plan import plan
from rowpost.deploy.verify import verify
from rowpost.errors import DatabaseError, PermissionDenied, RowpostError
from rowpost.operations.reading import check_queues
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.settings.environment import QueueSettings, SagaSettings
from rowpost.transport.maintenance import maintain_queue
from rowpost.transport.queue import Queue
from tests.support.logins import logins
from tests.support.probe import probe_for
from tests.support.sagas import Open, deploy, make_desk, make_endpoint, make_ledger

__all__ = ["make_desk"]


@pytest.fixture
def login(target, sql):
    """Makes logins without any right, and opens connections as them."""
    with logins(sql, target.url) as made:
        yield made


@pytest.mark.promise("execute-rights-suffice")
def test_an_endpoint_receives_and_sends_with_execute_alone_and_may_do_nothing_else(queue, target, sql, login):
    name = login.make("endpoint")
    grant(sql.database, name, receive_from=["Sales"], send_to=["Billing"], tables=target.babelfish)
    sql.empty("Billing")
    queue.send(b"work")
    tables = (
        f"SELECT * FROM {sql.table('Sales')}",
        f"DELETE FROM {sql.table('Sales')}",
        f"INSERT INTO {sql.table('Billing')} DEFAULT VALUES",
        "SELECT * FROM rowpost.queue",
    )

    with login.open(name) as database:
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
            *(() if target.babelfish else tables),  # without ownership chaining it has rights on its tables there
            f"SELECT * FROM {sql.table('error')}",
            "DELETE FROM rowpost.journal",
            "CREATE TABLE made_by_endpoint (id int)",
            "DROP TABLE rowpost.journal",
        ):
            with pytest.raises(DatabaseError), database.translated():
                database.driver_connection.execute(statement)
    assert sql.value(f"SELECT COUNT(*) FROM {sql.table('Billing')}") == 1
    sql.empty("Billing")


def test_a_login_without_any_right_is_told_so(queue, login):
    name = login.make("nobody")

    with login.open(name) as database, pytest.raises((PermissionDenied, DatabaseError)) as caught:
        Queue("Sales", database).send(b"")

    assert "permission" in str(caught.value).lower() or "denied" in str(caught.value).lower()


class Deployer:
    """A login that may create what apply creates and is no superuser, sa or dbo, in an empty database of its own.

    Babelfish adds no members to db_owner: there the database's owner deploys.
    """

    def __init__(self, target, url, made, owner):
        self.name, self.made, self.owner, self._target = made.make("deployer"), made, owner, target
        self.url = url if target.babelfish else made.url(self.name, url)
        if target.babelfish:
            return
        if owner.database.engine == "sqlserver":
            owner.run(f"ALTER ROLE db_owner ADD MEMBER {self.name}")
        else:
            owner.run(f"GRANT CREATE ON DATABASE {owner.value('SELECT current_database()')} TO {self.name}")
            owner.run(f"GRANT CREATE, USAGE ON SCHEMA public TO {self.name}")

    def apply(self, *queues, sagas=()):
        """Deploys rowpost, these queues and sagas; returns a connection of the deployer."""
        self.plan = plan(replace(self._target.settings, url=self.url, queues=queues, sagas=sagas))
        database = connect_url(self._target.settings.engine, self.url)
        apply(database, self.plan)
        return database


@pytest.fixture
def deployer(target, new_database):
    url = new_database("sqlserver" if target.settings.engine == "sqlserver" else target.label)
    with connect_url(target.settings.engine, url) as owner:
        probe = probe_for(owner, babelfish=target.babelfish)
        with logins(probe, url) as made:
            yield Deployer(target, url, made, probe)


@pytest.mark.promise("deploy-rights-suffice")
def test_what_another_login_than_the_owner_of_the_database_deploys_works_with_execute_alone(
    target, deployer, not_on_babelfish
):
    not_on_babelfish("adds no members to db_owner")
    with deployer.apply(QueueSettings("Sales"), QueueSettings("Billing")) as database:
        found = database.call("check_queue")
    endpoint = deployer.made.make("endpoint")
    grant(deployer.owner.database, endpoint, receive_from=["Sales"], send_to=["Billing"])

    with deployer.made.open(endpoint) as database:
        Queue("Billing", database).send(b"out")
        received = Queue("Sales", database).receive()

        with pytest.raises(PermissionDenied):
            Queue("Billing", database).receive()
    assert (found, received) == ([], [])
    if target.settings.engine == "sqlserver":
        owner = "SELECT USER_NAME(s.principal_id) FROM sys.schemas AS s WHERE s.name = N'rowpost'"
        assert deployer.owner.value(owner) == "dbo"


def test_a_table_of_an_owner_that_the_procedures_cannot_reach_is_found_and_the_remedy_mends_it(target, deployer):
    run, engine = deployer.owner.run, target.settings.engine
    if engine == "sqlserver":
        run(f"CREATE SCHEMA theirs AUTHORIZATION {deployer.name}")
        name = "Sales@[theirs]"
    else:
        name = "Sales"
    with deployer.apply(QueueSettings(name)) as database:
        if engine == "postgresql":
            run('ALTER TABLE "Sales" OWNER TO current_user')
            run(f'REVOKE ALL ON "Sales" FROM {deployer.name}')

        found = [row for row in deployer.owner.database.call("check_queue") if row.finding == "owner_differs"]

        assert [row.queue_name for row in found] == [name]
        if target.babelfish:
            pytest.skip("Babelfish has no ALTER AUTHORIZATION ON OBJECT: the finding was checked, its remedy was not")
        if engine == "postgresql":
            with pytest.raises(PermissionDenied):
                Queue(name, database).send(b"")
        run(found[0].remedy)
        Queue(name, database).send(b"")
        assert [row.finding for row in deployer.owner.database.call("check_queue")] == []


def test_a_sagas_table_of_an_owner_that_the_procedures_cannot_reach_is_found_and_the_remedy_mends_it(target, deployer):
    run, engine = deployer.owner.run, target.settings.engine
    if engine == "sqlserver":
        run(f"CREATE SCHEMA theirs AUTHORIZATION {deployer.name}")
    saga = SagaSettings("Policy@[theirs]" if engine == "sqlserver" else "Policy", "Key")
    with deployer.apply(sagas=(saga,)) as database:
        if engine == "postgresql":
            run('ALTER TABLE "Policy" OWNER TO current_user')
            run(f'REVOKE ALL ON "Policy" FROM {deployer.name}')

        found = [row for row in check_queues(database) if row.finding == "owner_differs"]
        deviations = [row.subject for row in verify(database, deployer.plan) if row.kind == "owner_differs"]

        assert [row.queue for row in found] == deviations == [f"saga {saga.name}"]
        if target.babelfish:
            pytest.skip("Babelfish has no ALTER AUTHORIZATION ON OBJECT: the finding was checked, its remedy was not")
        run(found[0].remedy)
        assert check_queues(database) == []


ROLES = ("rowpost_reader", "rowpost_body_reader", "rowpost_operator", "rowpost_endpoint")
SAGA = SagaSettings("Of_rights", "Key", transitional="Other", transitional_type="string")
ON_TABLES = (
    "SELECT * FROM {sales}", "INSERT INTO {sales} DEFAULT VALUES", "DELETE FROM {sales}", "UPDATE {sales} SET {headers} = ''",
    "SELECT * FROM rowpost.queue", "SELECT * FROM rowpost.failure",
)  # fmt: skip
#: read_range runs as its caller on PostgreSQL, for operators and readers of bodies: what it shows they may read from the table too
READS = {("postgresql", "rowpost_operator"), ("postgresql", "rowpost_body_reader")}
FORBIDDEN = (
    "DROP TABLE {sales}", "ALTER TABLE {sales} ADD extra integer", "DELETE FROM rowpost.journal", "UPDATE rowpost.version SET tool_version = 'x'", "DROP TABLE rowpost.journal",
    "CREATE TABLE rowpost.mine (id integer)", "CREATE TABLE mine (id integer)", "DROP {procedure} rowpost.get_version",
)  # fmt: skip


@pytest.fixture(scope="module")
def a_saga(target):
    """The saga Of_rights, with every procedure that a saga may have."""
    with target.connect() as database:
        apply(database, plan(replace(target.settings, sagas=(SAGA,))))


GRANTED = {
    "postgresql": """
        SELECT p.proname, coalesce(r.rolname, 'public')
        FROM pg_proc AS p
        CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
        LEFT JOIN pg_roles AS r ON r.oid = a.grantee
        WHERE p.pronamespace = 'rowpost'::regnamespace AND a.privilege_type = 'EXECUTE'
          AND (r.rolname IS NULL OR r.rolname LIKE 'rowpost^_%' ESCAPE '^')
    """,
    "sqlserver": """
        SELECT o.name, g.name
        FROM sys.database_permissions AS d
        INNER JOIN sys.objects AS o ON o.object_id = d.major_id
        INNER JOIN sys.database_principals AS g ON g.principal_id = d.grantee_principal_id
        WHERE d.class = 1 AND d.permission_name = 'EXECUTE' AND d.state = 'G' AND SCHEMA_NAME(o.schema_id) = N'rowpost'
          AND (g.name = N'public' OR g.name LIKE N'rowpost^_%' ESCAPE N'^')
    """,
}
#: helpers that run as their caller on PostgreSQL; the contract names no helper
HELPERS = {
    "postgresql": {("_resolve_queue", "rowpost_endpoint"), ("_resolve_queue", "rowpost_operator")},
    "sqlserver": set(),
}


@pytest.mark.usefixtures("a_saga", "queue")
def test_a_deployed_database_grants_what_the_contract_says_and_nothing_else(target, sql, not_on_babelfish):
    not_on_babelfish("does not list the rights on procedures in sys.database_permissions")
    contract, engine = load_contract(), target.settings.engine
    queues = [
        (row[1], contract.templates(row.kind, row.delayed, lease=row.lease)) for row in sql.database.call("list_queues")
    ]
    sagas = [(row[1], contract.saga_templates(row[6] is not None)) for row in sql.database.call("list_saga_types")]
    named = [(each.name, each) for each in contract.procedures if each.scope == "database"]
    named += [(f"{each.name}:{key}", each) for key, templates in [*queues, *sagas] for each in templates]

    granted = {tuple(row) for row in sql.run(GRANTED[engine])}

    assert granted == {(name, f"rowpost_{role}") for name, each in named for role in each.roles} | HELPERS[engine]


@pytest.mark.parametrize("role", [*ROLES, None])
def test_no_role_changes_a_table_or_makes_or_drops_anything_or_reads_more_than_it_may_call(
    queue, target, sql, login, role
):
    name = login.make("member")
    if role:
        sql.run(grant_role(sql.database.dialect, role, name))
    names = {
        "sales": sql.table("Sales"),
        "headers": "Headers" if target.settings.engine == "sqlserver" else "headers",
        "procedure": "PROCEDURE" if target.settings.engine == "sqlserver" else "FUNCTION",
    }
    went_through = []

    with login.open(name) as database:
        for statement in (*FORBIDDEN, *(() if role and target.babelfish else ON_TABLES)):  # it chains no ownership
            try:
                with database.translated():
                    database.driver_connection.execute(statement.format(**names))
            except RowpostError:
                continue
            went_through.append(statement)

    assert went_through == (["SELECT * FROM {sales}"] if (target.settings.engine, role) in READS else [])


def test_the_rights_of_the_seeds_model_let_plain_sql_work_and_are_given_only_when_asked_for(queue, target, sql, login):
    name = login.make("plain")
    without = grant_statements(target.settings, name, receive_from=["Sales"])
    with_tables = grant_statements(target.settings, name, receive_from=["Sales"], tables=True)
    for statement in with_tables:
        sql.run(statement)
    if target.settings.engine == "postgresql":
        sql.run(f"GRANT USAGE ON SCHEMA public TO {name}")

    with login.open(name) as database:
        database.driver_connection.execute(f"DELETE FROM {sql.table('Sales')}")
        with pytest.raises(RowpostError), database.translated():
            database.driver_connection.execute(f"DELETE FROM {sql.table('Billing')}")

    assert set(with_tables) - set(without) == set(with_tables[-2:])  # of the queue, and of its delayed table


def test_a_missing_right_is_named_with_its_object(queue, target, sql, login):
    name = login.make("partly")
    for statement in grant_statements(target.settings, name, send_to=["Billing"]):
        sql.run(statement)

    with login.open(name) as database:
        for missing, remedies in (
            ("send_message", {"queue grant"}),
            ("receive_messages", {"queue grant"}),
            ("peek_queue", {"queue grant"}),
            ("browse_messages", {"rowpost_reader"}),
            ("read_bodies", {"rowpost_body_reader"}),
            ("queue_metrics", {"rowpost_reader"}),
            ("purge_queue", {"rowpost_operator"}),
            ("maintain_queue", {"rowpost_operator"}),
        ):
            with pytest.raises(PermissionDenied) as caught:
                database.call(missing, "Sales")
            assert f"{missing}:Sales".casefold() in str(caught.value).casefold()
            assert remedies == {
                each
                for each in ("queue grant", "rowpost_reader", "rowpost_body_reader", "rowpost_operator")
                if each in str(caught.value)
            }, missing


@pytest.mark.parametrize("queue_name", [None, "Vacuumed@[elsewhere]"])
def test_an_operator_vacuums_where_the_server_lets_others_than_the_owner(make_queue, target, sql, login, queue_name):
    if target.settings.engine == "sqlserver":
        pytest.skip("on SQL Server maintain_queue runs as its owner: no right is needed")
    queue, name = make_queue(queue_name), login.make("operator")
    sql.run(grant_role(sql.database.dialect, "rowpost_operator", name))
    table = sql.table(queue.name)
    sql.run(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    sql.run(f"INSERT INTO {table} (id, headers) SELECT gen_random_uuid(), '' FROM generate_series(1, 12000)")
    sql.run(f"DELETE FROM {table}")
    dead = f"SELECT pg_stat_get_dead_tuples('{table}'::regclass)"
    deadline = time.monotonic() + 20
    while sql.value(dead) < 12_000:
        assert time.monotonic() < deadline

    with login.open(name) as database:
        steps = maintain_queue(database, queue.name)

    may = sql.value("SELECT current_setting('server_version_num')::integer") >= 170000
    assert [(step.action, step.state) for step in steps] == [("vacuum", "done" if may else "waits")]
    assert steps[0].statement.startswith("VACUUM (ANALYZE, TRUNCATE off) ")
    assert (sql.value(dead) == 0) == may


@pytest.mark.promise("execute-rights-suffice")
def test_an_endpoint_keeps_its_sagas_with_execute_alone_and_no_others(target, sql, login, make_desk):
    desk = make_desk()
    other = make_ledger("pessimistic", "Ledger_of_others")
    deploy(target, make_endpoint(other))
    name = login.make("saga_keeper")
    grant(
        sql.database,
        name,
        receive_from=["Sales"],
        send_to=["audit", "error"],
        sagas=[desk.table],
        tables=target.babelfish,
    )
    desk.send(Open("A", 5))

    with login.open(name) as database:
        outcome = Pipeline(database, "Sales", desk.endpoint).process_one()

        assert (outcome.kind, [row[2]["Total"] for row in desk.rows]) == (Kind.HANDLED, [5])
        for table in ("Ledger_of_others", *(() if target.babelfish else (desk.table,))):
            with pytest.raises(DatabaseError), database.translated():
                database.driver_connection.execute(f"SELECT * FROM {sql.table(table)}")
        with pytest.raises(PermissionDenied):
            database.call("load_saga", "Ledger_of_others", correlation_value="A", locked=False, lock_timeout_ms=100)
