"""The tSQLt test classes of sql/tests, one per procedure. They run on the engine that ROWPOST_TEST_SQLSERVER names.

Here tSQLt is the shim in deploy/tsqlt, so that the engine does not need CLR. deploy/tsqlt/run.py runs the classes on the
real tSQLt.
"""

import hashlib
import importlib.util
import io
import os
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from rowpost.database.connection import connect_url
from rowpost.database.contract import load_contract
from rowpost.database.sql_folder import sql_folder
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.deploy.runner import SqlserverRunner
from tests.support.babelfish import HandRunner, is_babelfish
from tests.support.engines_report import note_engine


def _load_runner() -> ModuleType:
    path = Path(__file__).resolve().parents[3] / "deploy" / "tsqlt" / "run.py"
    spec = importlib.util.spec_from_file_location("tsqlt_run", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


runner = _load_runner()
runner.make_runner = lambda database: HandRunner(database) if is_babelfish(database) else SqlserverRunner(database)
CLASSES = runner.read_classes()
TESTS = [test for each in CLASSES for test in each.tests]
#: INSERT EXEC: the columns, and the procedure of a queue or of the database
STORED = re.compile(r"INSERT INTO [#@]?\w+\s\(([^)]*)\)\nEXEC rowpost\.(?:\[(\w+):Sample(?:Saga)?\]|(\w+))")
ENGINE = os.environ.get("ROWPOST_TEST_SQLSERVER")
needs_engine = pytest.mark.skipif(not ENGINE, reason="no T-SQL engine: set ROWPOST_TEST_SQLSERVER")


def test_every_procedure_has_a_test_class():
    procedures = {path.relative_to(sql_folder() / "procedures") for path in sql_folder().glob("procedures/*/*.sql")}

    tested = {each.path.relative_to(sql_folder() / "tests") for each in CLASSES}

    assert tested == {path.with_name(f"test_{path.name}") for path in procedures}


def test_every_test_says_in_its_name_what_it_is_about():
    wrong = [str(test) for test in TESTS if not test.name.startswith(f"test {test.class_name.partition('_')[2]} ")]

    assert wrong == []


def test_every_class_of_a_procedure_shows_that_the_callers_session_stays_as_it_was():
    public = [each for each in CLASSES if "__" not in each.name]

    without = [
        each.name
        for each in public
        if not any("leaves the callers session as it was" in test.name for test in each.tests)
    ]

    assert without == []


def test_what_a_test_stores_of_a_result_has_the_contracts_columns():
    contract = load_contract()

    wrong = [
        (each.name, procedure, columns)
        for each in CLASSES
        for columns, queues, database in STORED.findall(each.text)
        for procedure in [contract.find_template(queues) if queues else contract.find(database, "database")]
        if len(columns.split(",")) != len(procedure.result)
    ]

    assert wrong == []
    assert [
        each.name
        for each in CLASSES
        if len(STORED.findall(each.text)) != len(re.findall(r"\)\nEXEC rowpost", each.text))
    ] == []


@pytest.fixture(scope="module")
def url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a database with rowpost, the sample queue and the shim."""
    url = request.getfixturevalue("lasting_database")("sqlserver")
    settings = runner.sample_settings(url)
    with connect_url("sqlserver", url) as database:
        note_engine(request.config, "sqlserver", database)
        apply(database, plan(settings))
        runner.install_shim(database)
    return url


@pytest.fixture(scope="module")
def outcome_of(url: str) -> Callable[[str], runner.Outcome]:
    """Return a function from a test's name to its outcome. A class runs at the first request for one of its tests."""
    found = {}

    def outcome(name: str) -> runner.Outcome:
        if name not in found:
            wanted = [each for each in CLASSES if name in map(str, each.tests)]
            found.update({str(outcome.test): outcome for outcome in runner.run_classes(url, wanted)})
        return found[name]

    return outcome


@needs_engine
@pytest.mark.parametrize("name", [str(test) for test in TESTS] if ENGINE else ["all"])
def test_tsqlt(outcome_of, name):
    outcome = outcome_of(name)

    if outcome.result == "Skipped":
        pytest.skip(outcome.message)
    assert (outcome.result, outcome.message) == ("Success", "")


FAILING = """EXEC tSQLt.NewTestClass @ClassName = N'try_outs';
GO
CREATE OR ALTER PROCEDURE try_outs.[test of what differs]
AS
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = 2;
GO
CREATE OR ALTER PROCEDURE try_outs.[test of case]
AS
EXEC tSQLt.AssertEqualsString @Expected = N'a', @Actual = N'A';
GO
CREATE OR ALTER PROCEDURE try_outs.[test of NULL]
AS
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = NULL;
GO
CREATE OR ALTER PROCEDURE try_outs.[test of an exception that does not come]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;
GO
CREATE OR ALTER PROCEDURE try_outs.[test of another exception]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51001;

EXEC rowpost.[peek_queue:Sample] @count = 0;
GO
CREATE OR ALTER PROCEDURE try_outs.[test of an error]
AS
EXEC rowpost.[peek_queue:Sample] @count = 0;
GO
CREATE OR ALTER PROCEDURE try_outs.[test of what was rolled back]
AS
EXEC rowpost.[send_message:Sample] @headers = N'';

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
"""


@needs_engine
def test_the_shim_tells_failures_errors_and_successes_apart(url):
    names = ["of what differs", "of case", "of NULL", "of an exception that does not come", "of another exception",
             "of an error", "of what was rolled back", "of what was rolled back"]  # fmt: skip
    tests = [runner.Test("try_outs", f"test {name}") for name in names]

    found = list(runner.run_classes(url, [runner.TestClass(Path("try_outs"), "try_outs", FAILING, tuple(tests))]))

    assert [outcome.result for outcome in found] == ["Failure"] * 5 + ["Error"] + ["Success"] * 2


def test_a_tsqlt_of_another_checksum_is_not_installed(tmp_path):
    file = tmp_path / "tSQLt.class.sql"
    file.write_text("SELECT 1;", encoding="utf-8")

    with pytest.raises(ValueError, match=hashlib.sha256(b"SELECT 1;").hexdigest()):
        runner.install_tsqlt(None, str(file), "0" * 64)


def test_a_download_is_compared_before_it_is_installed():
    fetched = []

    def download(address):
        fetched.append(address)
        return b"SELECT 1;"

    with pytest.raises(ValueError, match=hashlib.sha256(b"SELECT 1;").hexdigest()):
        runner.install_tsqlt(None, "https://example.com/tSQLt.zip", "0" * 64, download)

    assert fetched == ["https://example.com/tSQLt.zip"]


@needs_engine
@pytest.mark.parametrize(
    "pack", [lambda text: text, lambda text: zipped({"tSQLt/tSQLt.class.sql": text})], ids=["sql", "zip"]
)
def test_what_has_the_checksum_is_installed(request, tmp_path, pack):
    file = tmp_path / "tSQLt"
    file.write_bytes(pack(b"CREATE TABLE dbo.installed (a int);\nGO\n"))

    with connect_url("sqlserver", request.getfixturevalue("new_database")("sqlserver")) as database:
        runner.install_tsqlt(database, str(file), hashlib.sha256(file.read_bytes()).hexdigest())

        assert database.dialect.script(database.driver_connection, "SELECT COUNT(*) FROM dbo.installed;") == [(0,)]


def test_each_batch_of_the_framework_runs_bare_so_that_its_temporary_procedures_outlive_it(tmp_path, monkeypatch):
    file, ran = tmp_path / "tSQLt.class.sql", []
    file.write_text("CREATE PROCEDURE #made AS SELECT 1;\nGO\nEXEC #made;\nGO\n", encoding="utf-8")

    class Recording:
        def __init__(self, database):
            pass

        def run(self, batch, bare=False):
            ran.append((batch.text.strip(), bare))

    monkeypatch.setattr(runner, "make_runner", Recording)
    runner.install_tsqlt(None, str(file), hashlib.sha256(file.read_bytes()).hexdigest())

    assert ran == [("CREATE PROCEDURE #made AS SELECT 1;", True), ("EXEC #made;", True)]


def test_the_framework_is_not_installed_before_its_changes_to_the_server_were_printed(monkeypatch, capsys):
    monkeypatch.setenv("ROWPOST_TEST_SQLSERVER", "Server=127.0.0.1,1;UID=a;PWD=b")

    code = runner.main(["--tsqlt", "tSQLt.zip", "--sha256", "0" * 64])

    said = capsys.readouterr().out
    assert code == 2
    assert all(word in said for word in ("clr enabled", "tSQLtAssemblyKey", "UNSAFE ASSEMBLY", "--install-framework"))


@pytest.mark.parametrize(
    ("before", "after", "statements"),
    [
        ((0, False, False), (1, True, True), ["DROP LOGIN", "EXEC master", "EXEC sys.sp_configure 'clr enabled', 0"]),
        ((1, False, False), (1, True, True), ["DROP LOGIN", "EXEC master"]),
        ((1, True, True), (1, True, True), []),
        ((0, False, False), (0, False, False), []),
    ],
)
def test_what_the_framework_changed_is_taken_back_and_nothing_else(before, after, statements):
    found = runner.taken_back(runner.ServerState(*before), runner.ServerState(*after))

    assert [statement[: len(start)] for statement, start in zip(found, statements, strict=True)] == statements


def test_a_zip_without_tsqlt_is_refused_by_name(tmp_path):
    file = tmp_path / "other.zip"
    file.write_bytes(zipped({"readme.txt": b"nothing"}))

    with pytest.raises(ValueError, match=r"other\.zip holds no tSQLt"):
        runner.install_tsqlt(None, str(file), hashlib.sha256(file.read_bytes()).hexdigest())


def zipped(members: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return content.getvalue()


def test_the_runner_says_which_variable_names_the_server(monkeypatch, capsys):
    monkeypatch.delenv("ROWPOST_TEST_SQLSERVER", raising=False)

    with pytest.raises(SystemExit) as ended:
        runner.main([])

    assert ended.value.code == 2
    assert "ROWPOST_TEST_SQLSERVER" in capsys.readouterr().err


def test_the_junit_report_counts_and_names():
    test = runner.Test("a_class", "test a & b <c>")
    outcomes = [
        runner.Outcome(test, "Success", "", 0.5),
        runner.Outcome(test, "Failure", "Expected: <1>\x00"),
        runner.Outcome(test, "Skipped", "Babelfish: why"),
    ]

    suite = ElementTree.fromstring(runner.junit(outcomes)).find("testsuite")

    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    assert [case.get("name") for case in suite] == ["test a & b <c>"] * 3
    assert suite.find("testcase/failure").get("message") == "Expected: <1>?"
