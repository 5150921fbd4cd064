"""Deploying and working without a superuser: as the master user of a managed PostgreSQL, which may create databases and roles.

Amazon RDS, Aurora and Cloud SQL give their users these attributes: LOGIN CREATEDB CREATEROLE NOSUPERUSER NOREPLICATION.
"""

import re
from collections.abc import Iterator

import psycopg
import pytest

from tests.support.logins import PASSWORD, Logins, logins
from tests.support.probe import Probe
from tests.support.program import Program, environment_file

HANDLER = """
def store(message, connection):
    connection.execute("INSERT INTO stored (body) VALUES (%s)", (message.body.decode(),))
"""
QUEUES = 'queues: {Sales: {worker: {handler: "handlers:store"}}, Billing: {}, error: {}}\n'


@pytest.fixture
def made(target, sql) -> Iterator[Logins]:
    if target.settings.engine != "postgresql":
        pytest.skip("the roles of managed PostgreSQL")
    with logins(sql, target.url) as made:
        yield made


class Master:
    """A login as a managed server gives it, an endpoint's login without any right, and a database that the first one owns."""

    def __init__(self, made: Logins, sql: Probe, folder) -> None:
        self.endpoint = made.make("endpoint")  # dropped first: its memberships come from the other one
        self.login = made.make("master")
        self.database = f"of_{self.login}"
        sql.run(f"ALTER ROLE {self.login} CREATEDB CREATEROLE NOSUPERUSER NOREPLICATION")
        with psycopg.connect(made.url(self.login), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {self.database}")
        self.folder, self._url = folder, made.url(self.login)
        (folder / "handlers.py").write_text(HANDLER, encoding="utf-8")

    def url(self, login: str) -> str:
        url = re.sub("//[^@/]*@", f"//{login}:{PASSWORD}@", self._url)
        return re.sub(r"^(postgres(?:ql)?://[^/]*/)[^?]*", rf"\g<1>{self.database}", url)

    def program(self, login: str) -> Program:
        return Program(environment_file(self.folder, rest=QUEUES), self.folder, SHOP_URL=self.url(login))


@pytest.fixture
def master(made, sql, tmp_path) -> Iterator[Master]:
    master = Master(made, sql, tmp_path)
    yield master
    sql.run(f"DROP DATABASE {master.database} WITH (FORCE)")


def check(program: Program, name: str) -> dict:
    return next(each for each in program("doctor", "--json").json["checks"] if each["name"] == name)


def with_options(url: str, options: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{options}"


def statements(advice: str) -> list[str]:
    """The statements that the doctor prints for an administrator."""
    return re.findall(r"[A-Z][^;:]*;", advice)


def test_without_a_superuser_everything_is_deployed_granted_and_worked(master, sql):
    rowpost = master.program(master.login)
    applied = rowpost("apply")
    assert applied.code == 0, applied.err
    for statement in statements(
        check(rowpost, "rights to deploy")["advice"]
    ):  # the cluster's roles were created by another login
        sql.run(statement)
    with psycopg.connect(master.url(master.login), autocommit=True) as connection:
        connection.execute("CREATE TABLE stored (body text NOT NULL)")
        connection.execute(f"GRANT INSERT ON stored TO {master.endpoint}")
    granted = rowpost(
        "queue", "grant", "--login", master.endpoint, "--receive-from", "Sales", "--send-to", "Sales", "--apply"
    )

    endpoint = master.program(master.endpoint)
    sent = endpoint("send", "Sales", stdin="42")
    worked = endpoint("run", "--until-idle")

    assert (granted.code, sent.code, worked.code) == (0, 0, 0), granted.err + sent.err + worked.err
    assert "1 handled" in worked.err + worked.out
    assert rowpost("verify").code == 0
    assert [rowpost("queue", *each).code for each in (("maintain",), ("check",), ("metrics",))] == [0, 0, 0]
    with psycopg.connect(master.url(master.login)) as connection:
        assert connection.execute("SELECT body FROM stored").fetchall() == [("42",)]


def test_what_a_login_lacks_is_printed_and_is_all_that_it_needs(master, made, sql):
    program = master.program(master.endpoint)
    refused = program("apply")
    lacking = check(program, "rights to deploy")
    with psycopg.connect(master.url(sql.database.driver_connection.info.user), autocommit=True) as connection:
        for statement in statements(lacking["advice"]):
            connection.execute(statement)

    applied = program("apply")

    assert refused.code == 7
    assert "rowpost doctor" in refused.err
    assert lacking["state"] == "bad"
    assert applied.code == 0, applied.err
    assert check(program, "rights to deploy")["state"] == "ok"


def test_a_login_that_does_not_own_rowpost_is_told_who_does(master, sql):
    assert master.program(master.login)("apply").code == 0
    sql.run(f"GRANT {master.login} TO {master.endpoint}")

    told = check(master.program(master.endpoint), "rights to deploy")

    assert (told["state"], f"the role {master.login} owns rowpost" in told["found"]) == ("note", True)

    url = master.url(master.endpoint)
    (option,) = re.findall(r"options=\S+", told["advice"])
    as_owner = Program(environment_file(master.folder, rest=QUEUES), master.folder, SHOP_URL=with_options(url, option))
    assert as_owner("queue", "create", "Another").code == 0
    assert master.program(master.login)("queue", "drop", "Another", "--yes").code == 0, "its owner is the role"


def test_who_owns_rowpost_and_cannot_see_other_logins_transactions_is_named(master, sql):
    before = check(master.program(master.login), "statistics")
    for statement in statements(before["advice"]):
        sql.run(statement)

    after = [each["name"] for each in master.program(master.login)("doctor", "--json").json["checks"]]

    assert before["state"] == "note"
    assert "statistics" not in after


def test_a_read_only_login_is_told_in_one_sentence_and_by_the_doctor(master, sql):
    program = master.program(master.login)
    assert program("apply").code == 0
    sql.run(f"ALTER ROLE {master.login} SET default_transaction_read_only = on")

    refused = {
        command: program(*command.split(), stdin="42") for command in ("send Sales", "queue create Another", "apply")
    }

    assert {command: each.code for command, each in refused.items()} == dict.fromkeys(refused, 4)
    for each in refused.values():
        assert "rowpost: The server is read-only" in each.err
        assert "target_session_attrs=read-write" in each.err
    assert check(program, "writable")["state"] == "bad"
    several = with_options(master.url(master.login), "target_session_attrs=read-write")
    none = Program(environment_file(master.folder, rest=QUEUES), master.folder, SHOP_URL=several)("queue", "list")
    assert (none.code, "rowpost: The server is read-only" in none.err) == (4, True)
