"""rowpost doctor says what an environment needs and lacks, and changes nothing."""

import os
import re
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from rowpost.database import requirements
from rowpost.database.connection import connect_url
from rowpost.database.dialects.postgresql import checks as postgresql_checks
from rowpost.database.dialects.sqlserver import checks as sqlserver_checks
from rowpost.database.sql_folder import sql_folder
from rowpost.settings.environment import QueueSettings, SagaSettings, Settings, WorkerSettings
from tests.support.logins import logins
from tests.support.program import Program, environment_file, program  # noqa: F401 -- a fixture


def by_name(checks) -> dict[str, dict]:
    return {check["name"]: check for check in checks}


def test_a_healthy_environment_has_no_bad_check(program: Program):  # noqa: F811
    done = program("doctor", "--json")

    checks = by_name(done.json["checks"])
    assert (done.code, done.json["healthy"], done.json["bad"]) == (0, True, 0), done.out
    assert {name for name, check in checks.items() if check["state"] == "ok"} >= {
        "Python",
        "driver for PostgreSQL",
        "server",
        "clock",
        "schema",
        "queue Sales",
    }


def test_the_table_names_a_queue_that_is_not_deployed_and_the_command_that_deploys_it(program: Program, tmp_path):  # noqa: F811
    declared = environment_file(tmp_path, rest="queues: {Sales: {}, NotDeployed: {}}\n")

    done = program.with_environment(declared)("doctor")

    assert done.code == 1
    assert re.search(r"queue NotDeployed +bad +is not deployed +run: rowpost apply", done.out)


def test_a_database_without_rowpost_is_named(new_database, tmp_path):
    bare = Program(environment_file(tmp_path), tmp_path, SHOP_URL=new_database("embedded"))

    done = bare("doctor", "--json")

    assert done.code == 1
    assert "rowpost apply" in by_name(done.json["checks"])["schema"]["found"]
    assert bare("queue", "list").code != 0, "the doctor has deployed nothing"


def test_a_server_that_does_not_answer_is_named_and_no_password_is_shown(tmp_path):
    nobody = Program(environment_file(tmp_path), tmp_path, SHOP_URL="postgresql://shop:Secret123@127.0.0.1:1/shop")

    done = nobody("doctor")

    assert done.code == 1
    assert "127.0.0.1" in done.out
    assert "Secret123" not in done.out + done.err
    assert "Traceback" not in done.err


def test_what_connects_to_sql_server_lacks_is_bad_only_where_it_is_needed(tmp_path):
    (tmp_path / "pyodbc.py").write_text(
        "raise ImportError('libodbc.so.2: cannot open shared object file')", encoding="utf-8"
    )
    code = (
        "import json; from rowpost.database.requirements import check_drivers; "
        "print(json.dumps([{check.name: check.state for check in check_drivers(engine)} for engine in ('sqlserver', 'postgresql')]))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)

    there, here = eval(done.stdout)

    assert (there["driver for SQL Server"], here["driver for SQL Server"]) == ("bad", "note")


@pytest.mark.parametrize(("ahead", "state"), [(0.0, "ok"), (90.0, "note"), (-90.0, "note")])
def test_a_clock_that_differs_is_a_note(database, ahead, state):
    assert requirements.check_clock(database, lambda: time.time() - ahead).state == state


def test_a_login_without_rights_is_told_what_is_refused(target, sql):
    with logins(sql, target.url) as made:
        url = made.url(made.make("nobody"))
        settings = Settings(engine=target.settings.engine, url=url, queues=(QueueSettings("Sales"),))

        checks = list(requirements.check_server(settings))

    # Babelfish: the role db_owner owns the schema dbo, so that no two schemas have the owner dbo
    bad = [
        check
        for check in checks
        if check.state == "bad" and not (target.babelfish and check.name == "owner of rowpost")
    ]
    assert len(bad) == 1
    assert bad[0].name in {"server", "schema"}
    assert "ermission denied" in bad[0].found or "rowpost" in bad[0].found


def test_the_schemas_of_sagas_are_checked_as_those_of_queues_are(target, database, monkeypatch):
    asked = []
    monkeypatch.setattr(
        type(database.dialect), "checks", lambda self, connection, schemas, roles: iter(asked.append(schemas) or ())
    )
    settings = replace(
        target.settings,
        url=target.url,
        queues=(QueueSettings("Sales@[eu]"),),
        sagas=(SagaSettings("Policy@[us]", "Key"),),
    )

    list(requirements.check_server(settings))

    assert {"eu", "us"} <= set(asked[0])


@pytest.mark.parametrize(("prepared", "state"), [(0, "note"), (64, "ok")])
def test_a_server_that_prepares_no_transactions_is_named(prepared, state):
    check = postgresql_checks._two_phase(prepared)

    assert (check.state, f"is {prepared}" in check.found) == (state, True)


LIMITED = "idle_in_transaction_session_timeout"


@pytest.fixture
def limited(new_database):
    """A database with a setting that ends the sessions of handlers that work for long; its URL, and what sets it elsewhere instead."""
    url = new_database("embedded")
    with connect_url("postgresql", url) as database:
        name = database.dialect.quote(database.dialect.database_name(database.driver_connection))
        database.driver_connection.execute(f"ALTER DATABASE {name} SET {LIMITED} = '5min'")
    return url


def test_a_setting_that_ends_the_session_of_a_long_handler_is_named_with_its_place(limited, tmp_path):
    done = Program(environment_file(tmp_path), tmp_path, SHOP_URL=limited)("doctor", "--json")

    check = by_name(done.json["checks"])["session limits"]
    assert (check["state"], f"{LIMITED} is 300000 ms, set for the database" in check["found"]) == ("note", True)
    assert "ALTER ROLE postgres IN DATABASE" in check["advice"]


def test_a_setting_of_the_url_is_named_as_that(limited, tmp_path):
    url = f"{limited}{'&' if '?' in limited else '?'}options=-c%20{LIMITED}%3D7s"

    done = Program(environment_file(tmp_path), tmp_path, SHOP_URL=url)("doctor", "--json")

    check = by_name(done.json["checks"])["session limits"]
    assert ("set by the options of the url" in check["found"], "change it there" in check["advice"]) == (True, True)


def test_the_start_of_run_names_it_too(limited, tmp_path):
    declared = environment_file(
        tmp_path, rest="queues: {Sales: {worker: {handler: tests.workers.test_lost_connection:handler}}, error: {}}\n"
    )
    shop = Program(declared, tmp_path, SHOP_URL=limited)
    shop("apply")

    done = shop("run", "--until-idle")

    assert f"{LIMITED} is 300000 ms" in " ".join(done.err.split()), done


@pytest.fixture
def narrow(new_database):
    """The URL of a database that takes 12 connections."""
    url = new_database("embedded")
    with connect_url("postgresql", url) as database:
        name = database.dialect.quote(database.dialect.database_name(database.driver_connection))
        database.driver_connection.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 12")
    return url


def test_workers_that_may_take_more_connections_than_there_are_are_named_by_doctor_and_run(narrow, tmp_path):
    worker = "{handler: tests.workers.test_lost_connection:handler, limit: 3}"
    declared = environment_file(tmp_path, rest=f"queues: {{Sales: {{worker: {worker}}}, error: {{}}}}\n")
    shop = Program(declared, tmp_path, SHOP_URL=narrow)
    shop("apply")

    check = by_name(shop("doctor", "--json").json["checks"])["connections"]
    done = shop("run", "--until-idle")

    assert (check["state"], "may take 13, and the server allows 12" in check["found"]) == ("note", True)
    assert "lower the limits (Sales 3)" in check["advice"]
    assert "may take 13, and the server allows 12" in " ".join(done.err.split()), done


def test_limits_that_the_server_allows_are_no_finding(target):
    worker = WorkerSettings("shop:order", limit=90)
    settings = replace(target.settings, queues=(QueueSettings("Sales", worker=worker),))

    with target.connect() as database:
        allowed = database.dialect.connection_limit(database.driver_connection)

    assert allowed >= 100
    assert requirements.check_connections(settings, 100).state == "ok"
    assert requirements.check_connections(settings, 99).state == "note"


def test_a_participant_that_does_not_answer_is_named(program: Program, tmp_path):  # noqa: F811
    rest = 'queues: {Sales: {}}\nparticipants: {here: {url: "${SHOP_URL}"}, there: {url: "postgresql://127.0.0.1:1/there"}}\n'

    checks = by_name(program.with_environment(environment_file(tmp_path, rest=rest))("doctor", "--json").json["checks"])

    assert (checks["participant here"]["state"], checks["participant there"]["state"]) == ("ok", "bad")


def of_sql_server(updateability="READ_WRITE", controls=True, owners=None) -> dict[str, tuple[str, str]]:
    """What the doctor says of a SQL Server that answers so: state and advice by check. No SQL Server is asked."""
    owners = {"dbo": "[dbo]"} | (owners or {})
    found = sqlserver_checks.describe(updateability, "[shop]", controls, owners, list(owners))
    return {check.name: (check.state, check.advice) for check in found}


def test_a_sql_server_where_all_is_well_has_no_advice():
    assert of_sql_server(owners={"rowpost": "[dbo]"}) == {"writable": ("ok", ""), "rights to deploy": ("ok", "")}


def test_a_secondary_replica_of_sql_server_is_named():
    assert of_sql_server("READ_ONLY")["writable"][0] == "bad"


@pytest.mark.parametrize(("owners", "state"), [({}, "bad"), ({"rowpost": "[dbo]"}, "note")])
def test_a_login_that_cannot_deploy_on_sql_server_is_told_the_role_that_can(owners, state):
    told = of_sql_server(controls=False, owners=owners)["rights to deploy"]

    assert told == (state, "an administrator runs: ALTER ROLE db_owner ADD MEMBER [shop];")


@pytest.mark.parametrize("owners", [{"rowpost": "[deployer]"}, {"rowpost": "[dbo]", "app": "[team]"}])
def test_an_owner_that_breaks_the_ownership_chain_is_mended_as_check_queue_says(owners):
    remedies = (sql_folder() / "procedures/registry/check_queue.sql").read_text(encoding="utf-8")

    state, advice = of_sql_server(owners=owners)["owner of rowpost"]

    assert state == "bad"
    assert set(re.findall(r"ALTER AUTHORIZATION ON SCHEMA[^;]*;", advice)) <= set(
        re.findall(r"ALTER AUTHORIZATION ON SCHEMA[^;]*;", remedies)
    )
    assert ("SCHEMA::rowpost" in advice, "removes all rights" in advice) == (
        owners["rowpost"] != "[dbo]",
        owners["rowpost"] == "[dbo]",
    )


@pytest.mark.parametrize(("rights", "state"), [(2, ["ok"]), (1, ["bad"]), (0, ["bad"]), (None, [])])
def test_a_user_of_procedures_that_lost_a_right_is_named(rights, state):
    assert [check.state for check in sqlserver_checks.describe_internal(rights)] == state


def test_a_queue_whose_name_begins_with_a_schema_is_noted_with_the_spelling_that_was_meant(program: Program, tmp_path):  # noqa: F811
    declared = environment_file(tmp_path, rest="queues: {rowpost.Sales: {}, Nowhere.Sales: {}}\n")

    done = program.with_environment(declared)("doctor", "--json")

    advice = {check["name"]: check["advice"] for check in done.json["checks"] if "has a dot" in check["found"]}
    assert advice == {
        "queue rowpost.Sales": "if a schema is meant, write Sales@[rowpost]; if not, nothing is to be done"
    }
