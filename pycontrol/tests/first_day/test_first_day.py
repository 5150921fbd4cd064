"""The kit for the first day on SQL Server: its verdicts, its report, and a short run on the engine of ROWPOST_TEST_SQLSERVER."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from deploy.first_day.__main__ import STEPS as ALL_STEPS
from deploy.first_day.__main__ import runs
from deploy.first_day.ended import Failed, NotPossible, ProvedNothing
from deploy.first_day.locks import BODY, REMOVERS, contest_problem, judge_locks, no_proof, table_locks
from deploy.first_day.plans import RULES
from deploy.first_day.programs import CONCURRENT, QUICK, count_tests
from deploy.first_day.report import markdown, write
from deploy.first_day.scratch import NAME, Place, Secrets, parts, with_parts
from deploy.first_day.server import LONG, wrong_facts
from deploy.first_day.verdicts import FAILED, NOT_POSSIBLE, PASSED, PROVED_NOTHING, Step, Verdict, exit_code, judge

from rowpost.database.connection import connect_url
from rowpost.database.contract import load_contract
from rowpost.wire.address import IDENTIFIER_LIMIT, parse_address, queue_key
from tests.support.documents import ROOT
from tests.support.logins import with_login

SERVER = "ROWPOST_FIRST_DAY_URL"
PASSWORD = "S3cret;}x"
needs_engine = pytest.mark.skipif(
    not os.environ.get("ROWPOST_TEST_SQLSERVER"), reason="no T-SQL engine: set ROWPOST_TEST_SQLSERVER"
)


@pytest.fixture
def place(tmp_path):
    return Place("Server=s;UID=sa;PWD=pw", "", NAME, tmp_path, Secrets("Server=s;PWD={S3cret;}}x}"))


def ended(error):
    def run(_):
        raise error

    return Step("locks", "rows that are skipped", run, "ignores READPAST")


def first_day(*arguments, url="", folder=ROOT):
    environment = {key: value for key, value in os.environ.items() if key != SERVER} | ({SERVER: url} if url else {})
    environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{ROOT / 'pycontrol'}"
    command = [sys.executable, "-m", "deploy.first_day", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)


# ---------------------------------------------------------------------------------------------- verdicts
def test_a_step_passes_with_what_it_saw(place):
    verdict = judge(Step("locks", "title", lambda _: ["one", "two"]), place, clock=iter([1.0, 3.5]).__next__)

    assert verdict == Verdict("locks", "title", PASSED, "", ("one", "two"), 2.5)


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (Failed("a Sort", ["plan"]), FAILED, "a Sort"),
        (NotPossible("no view", ["plan"]), NOT_POSSIBLE, "no view"),
        (ProvedNothing("no lock was held", ["plan"]), PROVED_NOTHING, "no lock was held"),
        (KeyError("queue"), FAILED, "KeyError: 'queue' (at run, line "),
    ],
)
def test_an_error_of_a_step_is_its_verdict(place, error, state, reason):
    verdict = judge(ended(error), place)

    assert verdict.state == state
    assert verdict.reason.startswith(reason)
    assert verdict.seen == (() if isinstance(error, KeyError) else ("plan",))


def test_on_babelfish_a_known_limit_is_no_failure_and_an_unexpected_error_is_one(place):
    place.babelfish = True

    limit, unexpected = judge(ended(Failed("waited", ["2 s"])), place), judge(ended(ValueError("x")), place)

    assert (limit.state, limit.reason, limit.seen) == (
        NOT_POSSIBLE,
        "Babelfish ignores READPAST",
        ("seen: waited", "2 s"),
    )
    assert unexpected.state == FAILED


@pytest.mark.parametrize(
    ("states", "code"), [([PASSED, NOT_POSSIBLE, PROVED_NOTHING], 0), ([PASSED, FAILED, PASSED], 1), ([], 0)]
)
def test_the_exit_code_says_whether_a_step_failed(states, code):
    assert exit_code(Verdict("a", "b", state) for state in states) == code


# ---------------------------------------------------------------------------------------------- what the report shows
def test_a_password_is_in_no_verdict(place):
    seen = judge(ended(Failed(f"login with {PASSWORD} failed", [f"PWD={{{PASSWORD.replace('}', '}}')}}}"])), place)

    assert seen.reason == "login with *** failed"
    assert seen.seen == ("PWD=***",)


def test_a_connection_string_is_read_with_braces_and_its_parts_are_replaced():
    url = "Driver={ODBC Driver 18};Server=tcp:sql01,1433; UID=sa;PWD={a;b}}c};Trusted_Connection=yes;Encrypt=no;"

    assert parts(url)["pwd"] == "{a;b}}c}"
    assert with_parts(url, uid="x", pwd="y", trusted_connection="", database="z") == (
        "driver={ODBC Driver 18};server=tcp:sql01,1433;uid=x;pwd=y;encrypt=no;database=z"
    )


@pytest.mark.parametrize(
    "identity", ["UID=sa;PWD={a;b}", "Trusted_Connection=yes", "Authentication=ActiveDirectoryIntegrated;User ID=x"]
)
def test_the_logins_of_the_tests_replace_whatever_the_administrator_authenticates_with(identity):
    url = with_login(f"Server=sql01;{identity};Encrypt=no", "reader", "secret")

    assert url == "Server=sql01;Encrypt=no;UID=reader;PWD=secret"


STEPS = (Step("preflight", "version", len), Step("plans", "seeks", len))
AT = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def test_the_report_begins_with_one_screen_of_facts_and_verdicts():
    verdicts = [Verdict("preflight", "version", FAILED, "too old | 2014\nreally", ("build: 12",), 1.25)]

    lines = markdown({"server": "SQL Server", "RCSI": "True", "other": "x"}, verdicts, STEPS, AT).splitlines()

    assert "**0 passed, 1 failed, 0 proved nothing, 0 not possible here.**" in lines[2]
    assert [line for line in lines if line.startswith("|")] == [
        "| | |", "|---|---|", "| server | SQL Server |", "| RCSI | True |", "| Step | Verdict | Seconds | Reason |", "|---|---|---:|---|",
        "| preflight: version | **failed** | 1.2 | too old \\| 2014 really |", "| plans: seeks | not run | | |",
    ]  # fmt: skip
    assert lines[lines.index("## preflight: failed") :][-1] == "- build: 12"
    assert lines.index("## preflight: failed") < 40


def test_the_report_for_programs_has_the_same_verdicts(tmp_path):
    write(tmp_path, {"RCSI": "True"}, [Verdict("plans", "seeks", PASSED, seen=("x",))], STEPS, AT)

    data = json.loads((tmp_path / "report.json").read_text())
    assert data["facts"] == {"RCSI": "True"}
    assert [(step["name"], step["state"], step["seen"]) for step in data["steps"]] == [("plans", PASSED, ["x"])]
    assert "1 passed" in (tmp_path / "report.md").read_text()


# ---------------------------------------------------------------------------------------------- parts of steps
def test_a_report_of_tests_is_counted_with_names_of_failures_and_reasons_of_skips():
    report = (
        '<testsuites><testsuite><testcase classname="a" name="one"/><testcase classname="a" name="two"><failure message="no&#10;more"/></testcase>'
        '<testcase classname="a" name="three"><error message="broken"/></testcase><testcase classname="b" name="four"><skipped message="why"/></testcase>'
        "</testsuite></testsuites>"
    )

    counts = count_tests(report)

    assert (counts.passed, counts.failed, counts.skipped) == (1, ("a.two: no", "a.three: broken"), {"why": 1})
    assert counts.seen() == ["1 passed, 2 failed, 1 skipped", "a.two: no", "a.three: broken", "skipped 1: why"]


@pytest.mark.parametrize(
    ("mode", "found"), [("X", ["X Sales"]), ("S", ["S Sales"]), ("SIX", ["SIX Sales"]), ("IX", []), ("Sch-S", [])]
)
def test_a_lock_that_keeps_others_from_a_table_is_found(mode, found):
    held = [("KEY", "X", None, 4000), ("PAGE", "IX", None, 90), ("OBJECT", mode, 7, 1), ("OBJECT", "X", 99, 1)]

    assert table_locks(held, {7: "Sales"}) == found


def test_locks_of_a_whole_table_fail_and_a_view_without_locks_of_the_queue_proves_nothing():
    row = ("KEY", "X", None, 4000)
    tables = {7: "Sales"}

    judge_locks("purge", [row, ("OBJECT", "IX", 7, 1)], tables, "Sales", [])
    with pytest.raises(Failed, match="purge: locks a whole table: X Sales"):
        judge_locks("purge", [row, ("OBJECT", "X", 7, 1)], tables, "Sales", [])
    with pytest.raises(ProvedNothing, match="shows no lock on the queue"):
        judge_locks("purge", [row], tables, "Sales", [])


@pytest.mark.parametrize(
    ("errors", "received", "stored", "problem"),
    [
        ({"1205": 2}, [1, 2], 2, "2 deadlocks (1205)"),
        ({}, [1, 1, 2], 3, "not every message was handled exactly once"),
        ({}, [1], 1, "not every message was handled exactly once"),
        ({}, [1, 2], 1, "not every message was handled exactly once"),
        ({"1222": 1}, [1, 2], 2, ""),
    ],
)
def test_deadlocks_and_lost_or_repeated_messages_are_found(errors, received, stored, problem):
    assert contest_problem(errors, received, stored, 2) == problem


MEMBER = {
    "build": "15.0.4430.1",
    "edition": "Developer",
    "member of db_owner": "1",
    "member of sysadmin": "0",
    "user of the deployment": "deployer",
}


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        ({}, []),
        ({"build": "13.0.1601.5"}, ["the server has build 13.0.1601.5, and rowpost needs 13.0.4001 or higher"]),
        ({"build": "12.0.2000.8", "edition": "SQL Azure"}, []),
        ({"user of the deployment": "dbo"}, ["the login of the deployment is not a plain member of db_owner"]),
        ({"member of sysadmin": "1"}, ["the login of the deployment is not a plain member of db_owner"]),
        ({"member of db_owner": "0"}, ["the login of the deployment is not a plain member of db_owner"]),
    ],
)
def test_an_old_server_and_a_login_with_other_rights_are_found(facts, found):
    assert wrong_facts({**MEMBER, **facts}) == found


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"trace flags": "1211, 3226"}, "the trace flag 1211 disables lock escalation"),
        ({"trace flags": "11224, 3226", "optimized locking": "0"}, ""),
        ({"optimized locking": "1"}, "with optimized locking a transaction holds few locks of rows"),
        ({}, ""),
    ],
)
def test_a_server_that_never_escalates_proves_nothing_about_escalation(facts, why):
    assert no_proof(facts) == why


@pytest.mark.parametrize(
    ("rcsi", "babelfish", "settings"),
    [("both", False, ["off", "on"]), ("on", False, ["on"]), ("off", False, ["off"]), ("both", True, [""])],
)
def test_a_step_whose_result_depends_on_rcsi_runs_with_it_off_and_on(rcsi, babelfish, settings):
    found = runs(ALL_STEPS, rcsi, babelfish=babelfish)

    for name in ("concurrency", "registration", "readpast", "deadlocks", "escalation"):
        assert [each for step, each in found if step.name == name] == settings
    assert {each for step, each in found if not step.both} == {""}


def test_a_verdict_and_its_line_in_the_report_say_with_which_rcsi_the_step_ran(place, monkeypatch):
    asked = []
    monkeypatch.setattr(Place, "set_rcsi", lambda _, setting: asked.append(setting))
    step = Step("readpast", "title", lambda _: ["seen"], both=True)

    verdicts = [judge(step, place, rcsi=setting) for setting in ("off", "on")]

    assert asked == ["off", "on"]
    assert [verdict.label for verdict in verdicts] == ["readpast, RCSI off", "readpast, RCSI on"]
    assert [
        line for line in markdown({}, verdicts, [step], AT).splitlines() if "RCSI" in line or "not run" in line
    ] == [
        "| readpast, RCSI off: title | passed | 0.0 |  |",
        "| readpast, RCSI on: title | passed | 0.0 |  |",
        "## readpast, RCSI off: passed",
        "## readpast, RCSI on: passed",
    ]


def test_the_long_name_is_longer_with_its_procedure_than_a_sysname_and_its_key_is_not():
    key = queue_key(parse_address(LONG), "sqlserver")

    assert len(f"rowpost.[receive_messages:{LONG}]") > IDENTIFIER_LIMIT["sqlserver"]
    assert len(f"rowpost.[receive_messages:{key}]") == IDENTIFIER_LIMIT["sqlserver"]


def test_every_procedure_that_removes_many_wide_rows_is_watched_for_escalation():
    contract = load_contract()

    found = [contract.find(each.procedure, "queue" if each.of_queue else "database") for each in REMOVERS]

    assert {"send_staged", "drop_spool", "drop_staged"} < {each.name for each in found}
    assert [set(each.arguments) <= {p.name for p in f.parameters} for each, f in zip(REMOVERS, found, strict=True)] == [
        True
    ] * len(REMOVERS)
    assert "5000" in BODY


def test_every_procedure_with_a_rule_and_every_chosen_file_of_tests_exists():
    known = {procedure.name for procedure in load_contract().procedures}
    chosen = [*CONCURRENT, *(path for paths in QUICK.values() for path in paths)]

    assert {name.partition(":")[0] for name in RULES} - known == set()
    assert [path for path in chosen if not (ROOT / "pycontrol" / "tests" / path).is_file()] == []


# ---------------------------------------------------------------------------------------------- the program
@pytest.mark.parametrize(
    ("arguments", "url", "reason"),
    [
        ((), "", f"set {SERVER}"),
        (("--only", "nothing"), "Server=x", "invalid choice: 'nothing'"),
        (("--tsqlt", "tSQLt.zip"), "Server=x", "--tsqlt and --sha256 belong together"),
        (("--tsqlt", "tSQLt.zip", "--sha256", "0"), "Server=x", "Installing tSQLt changes the server"),
        (("--database", "shop"), "Server=x", f"The database must be called {NAME}"),
        (("--output", "."), "Server=x", "the folder of the report cannot be created"),
    ],
)
def test_a_run_that_cannot_start_says_why_and_leaves_nothing(tmp_path, arguments, url, reason):
    done = first_day(*arguments, url=url, folder=tmp_path)

    assert done.returncode == 2
    assert reason in " ".join(done.stderr.split())
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def server():
    return os.environ["ROWPOST_TEST_SQLSERVER"]


def exists(server, name):
    with connect_url("sqlserver", server) as database:
        found = database.dialect.script(database.driver_connection, f"SELECT DB_ID(N'{name}'), SUSER_ID(N'{name}');")
    return found != [(None, None)]


@needs_engine
def test_a_short_run_leaves_a_report_without_secrets_and_no_database_sqlserver(tmp_path, server):
    name, folder = f"{NAME}_{os.getpid()}", tmp_path / "report"

    done = first_day(
        "--quick",
        "--only",
        "preflight",
        "deploy",
        "long-name",
        "registration",
        "readpast",
        "escalation",
        "plans",
        "--database",
        name,
        "--output",
        str(folder),
        url=server,
    )

    steps = {step["name"]: step for step in json.loads((folder / "report.json").read_text())["steps"]}
    assert done.returncode == 0, done.stdout + done.stderr + (folder / "report.md").read_text()
    assert list(steps) == ["preflight", "deploy", "long-name", "registration", "readpast", "escalation", "plans"]
    assert {"second deployment: 0 changes", "verify: no finding", "check_queue: no finding"} <= set(
        steps["deploy"]["seen"]
    )
    assert not exists(server, name)
    secret = parts(server)["pwd"].strip("{}")
    assert [path.name for path in folder.iterdir() if secret in path.read_text()] == []


@needs_engine
def test_a_database_that_exists_is_not_touched_sqlserver(tmp_path, server):
    name = f"{NAME}_{os.getpid()}_taken"
    with connect_url("sqlserver", server) as database:
        database.dialect.script(database.driver_connection, f"CREATE DATABASE {name};")
        try:
            done = first_day(
                "--only", "preflight", "--database", name, "--output", str(tmp_path / "report"), url=server
            )

            assert done.returncode == 2
            assert f"A database or login {name} exists. Nothing was changed." in done.stderr
            assert exists(server, name)
            assert not (tmp_path / "report").exists()
        finally:
            database.dialect.script(database.driver_connection, f"DROP DATABASE {name};")
