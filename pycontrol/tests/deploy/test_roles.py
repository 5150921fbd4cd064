"""`roles: none` and `roles: cluster`: who works in a database, and what becomes of rights when the key changes."""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from rowpost.database.connection import connect_url
from rowpost.database.contract import ROLES
from rowpost.database.dialects.postgresql import checks as server_checks
from rowpost.database.sql_folder import sql_folder
from rowpost.deploy.apply import apply, difference
from rowpost.deploy.grants import grant, grant_role, grant_statements
from rowpost.deploy.plan import business_settings, plan
from rowpost.deploy.queues import create_queue, drop_queue, forget_queue
from rowpost.deploy.release import go_back, open_release
from rowpost.deploy.review import read_definition, review
from rowpost.deploy.verify import verify
from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.provisioning import prepare
from rowpost.errors import DatabaseError, DeployError, PermissionDenied
from rowpost.settings.environment import OutboxSettings, QueueSettings, SagaSettings, Settings
from rowpost.transport.queue import Queue
from tests.support.postgres import Server
from tests.support.program import Program, environment_file

QUEUES = (QueueSettings("Sales", lease=True), QueueSettings("Billing@[app]"))
SAGAS = (SagaSettings("Policy", "OrderId"),)
ALL_FOUR = {"rowpost_endpoint", "rowpost_operator", "rowpost_reader", "rowpost_body_reader"}
#: each right in a database, except on the server's own objects; a default of the server counts like one that was granted
RIGHTS = """
WITH granted AS (
    SELECT 'schema ' || n.nspname AS object, a.*
    FROM pg_namespace AS n, aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) AS a
    WHERE n.nspname !~ '^(pg_|information_schema)'
    UNION ALL
    SELECT 'function ' || p.oid::regprocedure, a.*
    FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
    WHERE p.pronamespace = 'rowpost'::regnamespace
    UNION ALL
    SELECT 'relation ' || c.oid::regclass, a.*
    FROM pg_class AS c, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) AS a
    WHERE c.relkind IN ('r', 'S') AND c.relnamespace::regnamespace::text !~ '^(pg_|information_schema)'
    UNION ALL
    SELECT format('column %s of %s', t.attname, t.attrelid::regclass), a.*
    FROM pg_attribute AS t, aclexplode(t.attacl) AS a
    WHERE t.attrelid >= 16384
)
SELECT g.object, CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END, g.privilege_type, g.is_grantable
FROM granted AS g
"""
#: what depends on the roles in this database, also on kinds of objects that nobody has thought of
LEFT = """
SELECT count(*) FROM pg_shdepend AS d
WHERE d.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND d.refclassid = 'pg_authid'::regclass AND d.refobjid::regrole::text ~ '^rowpost_'
"""


@pytest.fixture(autouse=True)
def on_postgresql(target):
    if target.settings.engine != "postgresql":
        pytest.skip("SQL Server's roles belong to its database, and are always made")


def with_roles(shop, roles, **more):
    return plan(replace(shop.settings, roles=roles, queues=QUEUES, sagas=SAGAS, **more))


def rights(database):
    with psycopg.connect(database, autocommit=True) as connection:
        return set(connection.execute(RIGHTS).fetchall())


def deployed_afresh(shop, new_database, roles):
    """The rights in a new database that was deployed with this key."""
    url = new_database(shop.label)
    with connect_url("postgresql", url) as other:
        apply(other, with_roles(shop, roles))
    return rights(url)


def of_roles(found):
    return {each for each in found if each[1] in ALL_FOUR}


def names(rows):
    """The parts of rights that do not differ between two databases of a server."""
    return {(name, who, what) for name, who, what, _ in rows}


def test_without_roles_nobody_but_the_owner_has_a_right(shop, database, sql):
    apply(database, with_roles(shop, "none"))

    found = rights(shop.settings.url)
    owner = sql.value("SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'rowpost'")
    ours = {each for each in found if each[0] != "schema public"}

    assert {who for _, who, _, _ in ours} == {owner}
    assert sql.value(LEFT) == 0
    assert verify(database, with_roles(shop, "none")) == []
    assert apply(database, with_roles(shop, "none")).applied == ()


def test_the_script_of_a_plan_without_roles_names_none_of_them(shop):
    script = re.sub(r"(?ms)--.*?$|/\*.*?\*/", "", with_roles(shop, "none").script)

    assert not re.search(r"(?m)^\s*(EXECUTE format\(')?GRANT\b|CREATE ROLE", script)
    assert set(re.findall(r"rowpost_(?:endpoint|operator|reader|body_reader)", script)) == {"rowpost_operator"}
    assert "to_regrole('rowpost_operator')" in script  # its members are operators where it has rights


@pytest.mark.parametrize("by_queue", [False, True])
def test_from_none_to_cluster_the_roles_get_the_rights_that_they_have_in_a_new_database(
    shop, database, new_database, by_queue
):
    apply(database, with_roles(shop, "none"))
    shown = difference(database, with_roles(shop, "cluster"))

    applied = apply(database, with_roles(shop, "cluster"), by_queue=by_queue).applied

    new = {
        "tables/roles.sql",
        *(f"tables/queue/roles.sql:{each.key}" for each in shown.plan.queues),
        "tables/saga/roles.sql:Policy",
    }
    assert set(shown.names("added")) == set(applied) == new
    assert not shown.is_empty
    assert names(rights(shop.settings.url)) == names(deployed_afresh(shop, new_database, "cluster"))
    assert verify(database, with_roles(shop, "cluster")) == []
    assert difference(database, with_roles(shop, "cluster")).is_empty


@pytest.mark.parametrize("by_queue", [False, True])
def test_from_cluster_to_none_the_rights_in_this_database_go_and_the_roles_stay(
    shop, database, sql, new_database, by_queue
):
    apply(database, with_roles(shop, "cluster"))
    elsewhere = new_database(shop.label)
    with connect_url("postgresql", elsewhere) as other:
        apply(other, with_roles(shop, "cluster"))
    before = of_roles(rights(elsewhere))
    diff = difference(database, with_roles(shop, "none"))
    shown = {item.name: item.state for item in review(diff, "postgresql", read_definition(database)).items}
    told = {each.subject: (each.kind, each.remedy) for each in verify(database, with_roles(shop, "none"))}

    result = apply(database, with_roles(shop, "none"), by_queue=by_queue)

    assert shown["tables/roles.sql"] == shown["tables/queue/roles.sql:Sales"] == "revoked"
    assert told["tables/roles.sql"] == ("not_declared", "rowpost apply")
    assert "tables/roles.sql" in result.dropped
    assert names(rights(shop.settings.url)) == names(deployed_afresh(shop, new_database, "none"))
    assert sql.value(LEFT) == 0
    assert {name for (name,) in sql.run("SELECT rolname::text FROM pg_roles")} >= ALL_FOUR
    assert of_roles(rights(elsewhere)) == before != set()
    assert verify(database, with_roles(shop, "none")) == []
    assert difference(database, with_roles(shop, "none")).is_empty


def test_a_queue_that_was_forgotten_leaves_its_roles_no_right(shop, database, sql):
    apply(database, with_roles(shop, "cluster"))
    forget_queue(database, "Billing@[app]")
    on_table = {who for what, who, _, _ in of_roles(rights(shop.settings.url)) if 'app."Billing"' in what}

    apply(database, plan(replace(shop.settings, roles="none", queues=QUEUES[:1], sagas=SAGAS)))

    assert on_table == set()
    assert sql.value(LEFT) == 0


def test_the_rights_come_back_after_they_went(shop, database, new_database):
    for roles in ("cluster", "none", "cluster"):
        apply(database, with_roles(shop, roles))

    assert names(rights(shop.settings.url)) == names(deployed_afresh(shop, new_database, "cluster"))


def test_the_rights_stay_if_another_environment_declares_the_roles(shop, database):
    apply(database, with_roles(shop, "cluster"))
    apply(database, with_roles(shop, "cluster", environment="staging"))
    before = rights(shop.settings.url)

    (kept,) = apply(database, with_roles(shop, "none")).kept
    after = rights(shop.settings.url)
    (then,) = difference(database, with_roles(shop, "none", environment="staging")).dropped[:1]

    assert (kept.subject, kept.reason) == ("the rights of rowpost's roles", "the environment staging declares it")
    assert after == before
    assert then.script_name.endswith("roles.sql:Billing@[app]") or "roles.sql" in then.script_name


def as_an_earlier_release_left_it(sql):
    """Take back what this release records: an earlier one granted the rights, and had neither script nor feature of roles."""
    sql.run("DELETE FROM rowpost.declared_feature WHERE feature = ?", ROLES)
    sql.run("DELETE FROM rowpost.journal WHERE script_name LIKE 'tables/roles.sql' OR script_name LIKE '%/roles.sql:%'")


def test_rights_that_an_earlier_release_granted_stay_until_somebody_decides(shop, database, sql, login, new_database):
    apply(database, with_roles(shop, "cluster"))
    as_an_earlier_release_left_it(sql)
    before = rights(shop.settings.url)
    operator = login.make("operator")
    sql.run(grant_role(database.dialect, "rowpost_operator", operator))

    (kept,) = apply(database, with_roles(shop, None, url=None)).kept  # as an environment of the embedded server
    after = rights(shop.settings.url)
    create_queue(database, "Later")
    with login.open(operator) as theirs:
        later = Queue("Later", theirs).browse(1)
    apply(database, with_roles(shop, "cluster"))
    apply(database, with_roles(shop, "none"))

    assert "no apply of this environment is on record" in kept.reason
    assert "`roles: cluster`" in kept.remedy and "`roles: none`" in kept.remedy
    assert names(after) == names(before)
    assert later == []
    assert sql.value(LEFT) == 0


def test_an_upgrade_with_roles_finds_nothing_to_change_in_them(shop, database, sql):
    apply(database, with_roles(shop, "cluster"))
    as_an_earlier_release_left_it(sql)
    before = rights(shop.settings.url)

    diff = difference(database, with_roles(shop, "cluster"))
    result = apply(database, with_roles(shop, "cluster"))

    assert diff.is_empty
    assert (result.applied, result.kept) == ((), ())
    assert rights(shop.settings.url) == before
    assert verify(database, with_roles(shop, "cluster")) == []


def test_a_member_of_the_clusters_operators_is_none_in_a_database_without_roles(shop, database, sql, login):
    apply(database, with_roles(shop, "cluster"))
    operator = login.make("operator")
    sql.run(grant_role(database.dialect, "rowpost_operator", operator))
    with login.open(operator) as theirs:
        before = Queue("Sales", theirs).browse(1)

    apply(database, with_roles(shop, "none"))
    with login.open(operator) as theirs, pytest.raises(PermissionDenied, match="`roles: none`"):
        Queue("Sales", theirs).browse(1)
    # nor with rights that an owner gives by hand: who is an operator may act for every queue
    sql.run(f"GRANT USAGE ON SCHEMA rowpost TO {operator}")
    sql.run(f"GRANT EXECUTE ON FUNCTION rowpost._is_operator, rowpost._may_receive TO {operator}")
    with login.open(operator) as theirs:
        asked = theirs.driver_connection.execute("SELECT rowpost._is_operator(), rowpost._may_receive('Sales')")
        answers = asked.fetchall()

    assert before == []
    assert answers == [(False, False)]
    assert sql.run("SELECT rowpost._is_operator(), rowpost._may_receive('Sales')") == [(True, True)]


def test_a_login_that_was_granted_its_queues_stops_and_works_again(shop, database, login):
    apply(database, with_roles(shop, "cluster"))
    name = login.make("endpoint")
    grant(database, name, receive_from=["Sales"], send_to=["Billing@[app]"])

    apply(database, with_roles(shop, "none"))
    with login.open(name) as theirs, pytest.raises((PermissionDenied, DatabaseError)):
        Queue("Sales", theirs).receive()
    apply(database, with_roles(shop, "cluster"))
    with login.open(name) as theirs:
        Queue("Billing@[app]", theirs).send(b"x")

        assert Queue("Sales", theirs).receive() == []
        with pytest.raises(PermissionDenied):
            Queue("Billing@[app]", theirs).receive()


def test_nobody_is_granted_a_queue_of_an_environment_without_roles(shop, database):
    apply(database, with_roles(shop, "none"))

    with pytest.raises(DeployError, match="`roles: cluster`"):
        grant(database, "shop", receive_from=["Sales"])
    with pytest.raises(DeployError, match="`roles: cluster`"):
        grant_statements(Settings(engine="postgresql", roles="none"), "shop", receive_from=["Sales"])
    assert grant_statements(Settings(engine="sqlserver"), "shop", receive_from=["Sales"])


def test_a_queue_that_comes_and_goes_alone_gets_the_rights_that_the_database_has(shop, database, sql):
    apply(database, with_roles(shop, "none"))
    create_queue(database, "Later")
    alone = of_roles(rights(shop.settings.url))
    forget_queue(database, "Later")
    create_queue(database, "Later")
    drop_queue(database, "Later")

    apply(database, with_roles(shop, "cluster"))
    create_queue(database, "Later")

    assert alone == set()
    assert {who for what, who, _, _ in of_roles(rights(shop.settings.url)) if "Later" in what} == ALL_FOUR - {
        "rowpost_endpoint"
    }


@pytest.mark.parametrize("roles", ["none", "cluster"])
def test_the_way_back_grants_what_the_database_has(shop, database, roles):
    apply(database, with_roles(shop, roles))
    before = rights(shop.settings.url)

    with open_release(sql_folder()) as release:
        go_back(database, release, "shop")

    assert rights(shop.settings.url) == before
    assert verify(database, with_roles(shop, roles)) == []


def test_an_endpoint_that_prepares_its_database_makes_no_roles_and_leaves_those_of_others(shop, database, sql):
    prepare(Endpoint("Shop.Own"), database)
    alone = sql.value(LEFT)

    apply(database, with_roles(shop, "cluster"))
    before = {who for _, who, _, _ in rights(shop.settings.url)}
    prepare(Endpoint("Shop.Second"), database)
    after = of_roles(rights(shop.settings.url))

    assert alone == 0
    assert before >= ALL_FOUR
    assert any("Shop.Second" in what for what, _, _, _ in after)


def test_the_key_holds_for_the_business_databases_of_outboxes_too():
    def made(engine, roles, url=None):
        outbox = OutboxSettings("shop", "postgresql://app@db/shop")
        settings = Settings(engine=engine, url=url, roles=roles, outboxes=(outbox,))
        return [ROLES in plan(each).features for each in (settings, business_settings(settings, outbox))]

    assert made("postgresql", "none", "postgresql://app@db/queues") == [False, False]
    assert made("postgresql", None, "postgresql://app@db/queues") == [True, True]
    assert made("postgresql", None) == [False, True]  # the embedded server, and another one
    assert made("sqlserver", "none", "Server=x;Database=y") == [False, False]  # SQL Server's are in the core


# ------------------------------------------------------------------------------------------------ a server of its own
@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server on which nobody has made rowpost's roles."""
    with tempfile.TemporaryDirectory(prefix="rowpost-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        server = Server(Path(name) / "own")
        server.create()
        server.start()
        with psycopg.connect(server.url(), autocommit=True) as admin:
            admin.execute("CREATE ROLE shop LOGIN NOSUPERUSER NOCREATEROLE NOCREATEDB")
            admin.execute("CREATE ROLE other LOGIN")
        yield server
        server.stop()


@pytest.fixture
def place(server: Server) -> Iterator[str]:
    """The URL of a database that the login `shop` owns, which may make neither roles nor databases."""
    with psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE place OWNER shop")
        yield server.url("place", "shop")
        admin.execute("DROP DATABASE place WITH (FORCE)")
        for (name,) in admin.execute("SELECT rolname FROM pg_roles WHERE rolname ~ '^rowpost_'").fetchall():
            admin.execute(f"DROP ROLE {name}")


HANDLER = """
def store(message, connection):
    connection.execute("INSERT INTO stored (body) VALUES (%s)", (message.body.decode(),))
"""
WORK = 'default_schema: queues\nqueues: {Sales: {worker: {handler: "handlers:store"}}, error: {}}\n'


def program(folder, url, key):
    (folder / "handlers.py").write_text(HANDLER, encoding="utf-8")
    return Program(environment_file(folder, rest=key + WORK), folder, SHOP_URL=url)


def roles_of(server):
    with psycopg.connect(server.url()) as admin:
        return {
            name for (name,) in admin.execute("SELECT rolname FROM pg_roles WHERE rolname ~ '^rowpost_'").fetchall()
        }


def checks_of(rowpost):
    return {each["name"]: each for each in rowpost("doctor", "--json").json["checks"]}


def test_the_owner_of_a_database_without_any_other_right_deploys_and_works(server, place, tmp_path):
    rowpost = program(tmp_path, place, "roles: none\n")

    planned = rowpost("plan")
    applied = rowpost("apply")
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute("CREATE TABLE stored (body text NOT NULL)")
    sent = rowpost("send", "Sales", stdin="42")
    worked = rowpost("run", "--until-idle")
    verified = rowpost("verify")
    checked = rowpost("doctor", "--json")

    assert [each.code for each in (planned, applied, sent, worked, verified)] == [0] * 5, applied.err + worked.err
    assert "tables/schema/create.sql:queues" in planned.out
    assert "only the login that owns rowpost works" in planned.err
    assert "1 handled" in worked.err + worked.out
    with psycopg.connect(place) as connection:
        assert connection.execute("SELECT body FROM stored").fetchall() == [("42",)]
    assert roles_of(server) == set()
    assert checked.code == 0, checked.out
    found = checks_of(rowpost)
    assert (found["rights to deploy"]["state"], found["roles"]["state"]) == ("ok", "ok")
    assert "only the login shop works" in found["roles"]["found"]
    maintained = [rowpost("queue", *each).code for each in (("list",), ("check",), ("metrics",), ("maintain",))]
    assert maintained == [0, 0, 0, 0]


def test_the_owner_without_the_key_is_told_it_and_nothing_is_changed(server, place, tmp_path):
    rowpost = program(tmp_path, place, "")

    refused = rowpost("apply")
    checked = checks_of(rowpost)["rights to deploy"]

    assert refused.code == 7
    assert "The role rowpost_endpoint does not exist and you may not create roles" in refused.err
    assert "`roles: none`" in refused.err
    assert (checked["state"], "`roles: none`" in checked["advice"]) == ("bad", True)
    assert "CREATE ROLE rowpost_operator;" in checked["advice"]
    assert rowpost("verify", "--json").json["findings"][0]["kind"] == "schema_missing"


def test_the_files_of_the_plan_deploy_the_same_by_hand(server, place, tmp_path, psql):
    rowpost = program(tmp_path, place, "roles: none\n")
    assert rowpost("plan", "--sql", "--output", "plan.sql").code == 0

    done = subprocess.run(
        [psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", tmp_path / "plan.sql", place],
        capture_output=True, text=True, check=False, env={"PGCLIENTENCODING": "UTF8"},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert rowpost("verify").code == 0
    assert roles_of(server) == set()


def test_another_login_is_told_why_it_cannot_work(server, place, tmp_path):
    rowpost = program(tmp_path, place, "roles: none\n")
    assert rowpost("apply").code == 0
    other = program(tmp_path, server.url("place", "other"), "roles: none\n")

    refused = other("send", "Sales", stdin="42")
    checked = checks_of(other)["roles"]
    granted = rowpost("queue", "grant", "--login", "other", "--send-to", "Sales", "--apply")

    assert refused.code == 5
    assert "`roles: none`" in refused.err
    assert (checked["state"], "connect as shop" in checked["advice"]) == ("bad", True)
    assert granted.code == 7
    assert "`roles: cluster`" in granted.err


def test_the_owner_gets_the_roles_from_an_administrator_and_gives_them_up_again(server, place, tmp_path):
    without, having = program(tmp_path, place, "roles: none\n"), tmp_path / "cluster"
    having.mkdir()
    cluster = program(having, place, "roles: cluster\n")
    assert without("apply").code == 0

    advice = checks_of(cluster)["rights to deploy"]["advice"]
    with psycopg.connect(server.url(), autocommit=True) as admin:
        for statement in re.findall(r"CREATE ROLE \w+;", advice):
            admin.execute(statement)
    shown = cluster("plan")
    applied = cluster("apply")
    verified = cluster("verify")
    back = without("plan")
    kept = checks_of(without)["roles"]
    revoked = without("apply")

    assert [each.code for each in (shown, applied, verified, back, revoked)] == [0] * 5, applied.err
    assert "tables/roles.sql" in shown.out
    assert "its rights will be revoked" in back.out
    assert "The roles stay" in back.err
    assert kept["state"] == "note"
    assert "were revoked" in revoked.err and "The roles stay" in revoked.err
    assert roles_of(server) == ALL_FOUR
    with psycopg.connect(place) as connection:
        assert connection.execute(LEFT).fetchone() == (0,)
    assert checks_of(without)["roles"]["state"] == "ok"


def test_an_embedded_server_has_no_roles_unless_its_environment_asks_for_them(tmp_path):
    path = tmp_path / "own.yml"
    path.write_text("engine: embedded\nqueues: {Sales: {}, error: {}}\n", encoding="utf-8")
    rowpost = Program(path, tmp_path)
    script = rowpost("plan", "--sql").out
    path.write_text("engine: embedded\nroles: cluster\nqueues: {Sales: {}, error: {}}\n", encoding="utf-8")
    asked = rowpost("plan", "--sql").out

    assert "CREATE ROLE" not in script
    assert "CREATE ROLE" in asked


def test_rights_of_roles_are_not_looked_for_without_them(database):
    def sentences(roles):
        return list(server_checks.checks(database.driver_connection, ["public"], roles=roles))

    assert [each.found for each in sentences(roles=False) if each.name == "rights to deploy"] == [
        "this login may run apply"
    ]
    assert "roles" not in {each.name for each in sentences(roles=True)}
