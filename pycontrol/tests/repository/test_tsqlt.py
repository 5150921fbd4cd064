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
from rowpost.deploy.sql_text import split_batches
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
EMPTY = "EXEC rowpost_tests.empty_tables;\n"
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


def test_every_class_begins_each_test_with_empty_tables():
    without = [each.name for each in CLASSES if f"PROCEDURE {each.name}.[SetUp]\nAS\n{EMPTY}" not in each.text]
    emptied = set(re.findall(r"DELETE \w FROM rowpost\.(\w+) AS", (sql_folder() / "tests" / "set_up.sql").read_text()))
    own = {name.partition("_")[2] for name in load_contract().tables if name[0].isdigit()}

    assert without == []
    assert own - emptied == {
        "schema",
        "journal",
        "version",
        "subscription",
    }  # what the deployment wrote, and dbo's table


def test_a_table_without_a_row_is_not_counted_but_shown():
    counted = [
        each.name
        for each in CLASSES
        for count, var in re.findall(r"(DECLARE @(\w+) int = \(SELECT COUNT\(\*\) FROM [^ ()]+ AS \w+\);)", each.text)
        for body in [each.text.partition(count)[2].partition("\nGO\n")[0]]
        if f"@Expected = 0, @Actual = @{var};" in body and len(re.findall(rf"@{var}\b", body)) == 1
    ]

    assert counted == ["pubsub__write_subscription"]  # it is counted before a row is stored


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


#: what others have stored in the database: rows in all tables that the tests use
OF_OTHERS = """
EXEC rowpost.register_queue @queue_key = N'Other', @queue_name = N'Other', @schema_name = N'app', @table_name = N'Other',
    @kind = 'external', @body_string = 0, @clustered = 1, @delayed = 0;
EXEC rowpost.register_saga @saga_key = N'OtherSaga', @saga_name = N'OtherSaga', @schema_name = N'app', @table_name = N'OtherSaga',
    @correlation_name = N'Key', @correlation_type = 'string';
EXEC rowpost.register_subscription_table @table_key = N'OtherRouting', @display_name = N'OtherRouting', @schema_name = N'app', @table_name = N'OtherRouting';
EXEC rowpost.record_failure @queue_key = N'Sample', @id = 'aaaaaaaa-0000-0000-0000-0000000000ff';
EXEC rowpost.record_decision @queue_key = N'Sample', @transaction_id = 'other', @participants = N'[]';
EXEC rowpost.renew_ownership @queue_name = N'Sample', @seconds = 86400;
EXEC rowpost.control_queue @queue_name = N'Sample', @is_paused = 1;
EXEC rowpost.record_feature @environment = N'other', @feature = N'spark';
EXEC rowpost.record_handled @endpoint = N'Other', @message_id = N'm';
EXEC rowpost.store_operations @endpoint = N'Other', @message_id = N'm', @operations = N'[]';
EXEC rowpost.record_dispatch @endpoint = N'Other', @message_id = N'm';
EXEC rowpost.record_operation @operation_name = N'retry', @client = N'other', @queue_name = N'Sample';
EXEC rowpost.report_supervisor @supervisor_id = 'aaaaaaaa-0000-0000-0000-0000000000ff', @host_name = N'h', @process_id = 1,
    @environment = N'other', @rowpost_version = N'1', @queues = N'["Sample"]', @workers = N'[]';
EXEC rowpost.begin_job @job_key = N'other', @destination = N'Sample', @run = N'r', @mode = N'staged';
EXEC rowpost.stage_messages @job_key = N'other', @attempt = N'r/0', @messages = N'[{"ordinal":0,"headers":""}]';
EXEC rowpost.claim_ledger @job_key = N'other', @part = 0;
EXEC rowpost.[send_message:Sample] @headers = N'{"of":"others"}';
EXEC rowpost.[move_to_spool:Sample] @owner = N'other', @count = 10;
EXEC rowpost.[send_message:Sample] @headers = N'{"of":"others"}';
EXEC rowpost.[delay_message:Sample] @headers = N'{"of":"others"}', @delay_ms = 86400000;
EXEC rowpost.[insert_saga:SampleSaga] @id = 'aaaaaaaa-0000-0000-0000-0000000000ff', @correlation_value = N'others', @data = N'{}', @metadata = N'{}',
    @persistence_version = '1', @saga_type_version = '1';
EXEC rowpost.register_schedule @schedule_name = N'other', @queue_name = N'Sample', @destination = N'Sample', @message_type = N'Others.Tick',
    @interval_ms = 1000, @zone = N'UTC', @missed = N'once';
INSERT INTO rowpost.purge (queue_key, row_version, purged_at) VALUES (N'Other', 1, SYSUTCDATETIME());
INSERT INTO rowpost.job_part (job_key, part, attempt, messages, digest) VALUES (N'other', 0, N'r/0', 1, 'd');
INSERT INTO dbo.SubscriptionRouting (QueueAddress, Endpoint, Topic) VALUES (N'Other@[app]', N'Other', N'Others.Topic');
INSERT INTO dbo.SampleRouting (QueueAddress, Endpoint, Topic) VALUES (N'Other@[app]', N'Other', N'Others.Topic');
INSERT INTO rowpost.taken_subscription (endpoint, topic, publisher, queue_address) VALUES (N'Other', N'Others.Topic', N'Sample@[dbo]', N'Other@[app]');
"""


@pytest.fixture(scope="module")
def url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a database with rowpost, the sample queue, the shim, and rows of others in all tables."""
    url = request.getfixturevalue("lasting_database")("sqlserver")
    settings = runner.sample_settings(url)
    with connect_url("sqlserver", url) as database:
        note_engine(request.config, "sqlserver", database)
        apply(database, plan(settings))
        runner.install_shim(database)
        for batch in split_batches(OF_OTHERS.replace(";\nEXEC", ";\nGO\nEXEC"), "sqlserver"):
            runner.make_runner(database).run(batch)
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
CREATE OR ALTER PROCEDURE try_outs.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE try_outs.[test of a table that is not empty]
AS
EXEC rowpost.record_dispatch @endpoint = N'Shown', @message_id = N'm-1';

EXEC tSQLt.AssertEmptyTable @TableName = N'rowpost.dispatch';
GO
CREATE OR ALTER PROCEDURE try_outs.[test of a row that is there twice]
AS
CREATE TABLE #one (a int NULL, b nvarchar(10));
CREATE TABLE #two (a int NULL, b nvarchar(10));
INSERT INTO #one (a, b) VALUES (NULL, N'x'), (1, N'y');
INSERT INTO #two (a, b) VALUES (1, N'y'), (NULL, N'x'), (1, N'y');

EXEC tSQLt.AssertEqualsTable @Expected = N'#one', @Actual = N'#two';
GO
CREATE OR ALTER PROCEDURE try_outs.[test of equal tables]
AS
CREATE TABLE #one (a int NULL, b nvarchar(10));
CREATE TABLE #two (a int NULL, b nvarchar(10));
INSERT INTO #one (a, b) VALUES (NULL, N'x'), (1, N'y');
INSERT INTO #two (a, b) VALUES (1, N'y'), (NULL, N'x');

EXEC tSQLt.AssertEqualsTable @Expected = N'#one', @Actual = N'#two';
EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.Sample';
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
    names = ["of a table that is not empty", "of a row that is there twice", "of what differs", "of case", "of NULL", "of an exception that does not come", "of another exception",
             "of an error", "of what was rolled back", "of what was rolled back", "of equal tables"]  # fmt: skip
    tests = [runner.Test("try_outs", f"test {name}") for name in names]

    found = list(runner.run_classes(url, [runner.TestClass(Path("try_outs"), "try_outs", FAILING, tuple(tests))]))

    assert [outcome.result for outcome in found] == ["Failure"] * 7 + ["Error"] + ["Success"] * 3
    assert "Shown" in found[0].message and "Other" not in found[0].message
    assert all(word in found[1].message.replace(" ", "") for word in ('"expected":1', '"actual":2', "y"))


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
