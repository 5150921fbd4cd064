"""Each rule over the T-SQL finds a sample that breaks it, and nothing in one that keeps it."""

import pytest

from tests.support.tsql.compiler import Finding, Source, compile_sets
from tests.support.tsql.rules import RULES
from tests.support.tsql.runtime import UnsupportedMachine, prepare_runtime

pytestmark = [pytest.mark.lint, pytest.mark.timeout(900)]  # .NET compiles the parser and the compiler first

TABLES = """CREATE TABLE dbo.heap (number bigint IDENTITY (1, 1) NOT NULL, due datetime NOT NULL, name nvarchar(100) NOT NULL, version bigint NULL);
GO
CREATE NONCLUSTERED INDEX heap_due ON dbo.heap (due);
GO
CREATE TABLE dbo.keyed (name nvarchar(100) NOT NULL, part int NOT NULL, due datetime NOT NULL, PRIMARY KEY CLUSTERED (name, part));
GO
CREATE NONCLUSTERED INDEX keyed_due ON dbo.keyed (due);
GO
CREATE TABLE dbo.wide (name nvarchar(100) NOT NULL, said nvarchar(max) NOT NULL, PRIMARY KEY CLUSTERED (name));
GO
CREATE TABLE dbo.kept (name nvarchar(100) NOT NULL, said nvarchar(max) NOT NULL, PRIMARY KEY CLUSTERED (name));
GO
ALTER TABLE dbo.kept SET (LOCK_ESCALATION = DISABLE);
GO
"""
TESTS = "sql/tests"
OPTIONS = "SET ANSI_NULLS ON;\nSET QUOTED_IDENTIFIER ON;\nGO\n"
READ_COMMITTED = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;\n"
BETWEEN = "IF @count NOT BETWEEN 1 AND {} THROW 51003, N'Too many.', 1;\n"
ORDERED = "WITH old AS (SELECT TOP (@count) h.due FROM dbo.heap AS h ORDER BY h.due)\nDELETE FROM old;"

#: rule, statements that break it, statements that keep it; in a procedure with @count int and @name nvarchar(100)
SAMPLES = [
    ("literal_option", "SET LOCK_TIMEOUT @count;", "SET LOCK_TIMEOUT 1000;"),
    (
        "bigint_literal",
        "SELECT h.due FROM dbo.heap AS h WHERE h.number > -9223372036854775808;",
        "DECLARE @above bigint = -9223372036854775808;\nSELECT h.due FROM dbo.heap AS h WHERE h.number > @above;",
    ),
    (
        "bigint_literal",
        "UPDATE h SET h.version = 9223372036854775807 FROM dbo.heap AS h WHERE h.number = 1;",
        "UPDATE h SET h.version = 2147483647 FROM dbo.heap AS h WHERE h.number = 1;",
    ),
    (
        "bounded_change",
        "DELETE FROM dbo.keyed WHERE name = @name;",
        "DELETE FROM dbo.keyed WHERE name = @name AND part = 1;",
    ),
    (
        "bounded_change",
        "DELETE h FROM dbo.heap AS h WHERE h.due = 1;",
        "DELETE h FROM dbo.heap AS h WHERE h.number = @count;",
    ),
    (
        "bounded_change",
        "UPDATE k SET k.due = 1 FROM dbo.keyed AS k;",
        "UPDATE TOP (100) k SET k.due = 1 FROM dbo.keyed AS k;",
    ),
    ("bounded_change", BETWEEN.format(10000) + ORDERED, BETWEEN.format(4000) + ORDERED),
    (
        "bounded_change",
        "DELETE k FROM dbo.keyed AS k WHERE k.name = @name OR k.part = 1;",
        "DECLARE @rows TABLE (a int);\nDELETE FROM @rows;",
    ),
    (
        "ordered_top",
        "SELECT TOP (5) h.number FROM dbo.heap AS h ORDER BY h.due, h.number;",
        "SELECT TOP (5) h.number FROM dbo.heap AS h ORDER BY h.due;",
    ),
    (
        "ordered_top",
        "SELECT TOP (5) k.part FROM dbo.keyed AS k ORDER BY k.part;",
        "SELECT TOP (5) k.part FROM dbo.keyed AS k WHERE k.name = @name ORDER BY k.part;",
    ),
    (
        "ordered_top",
        "SELECT TOP (5) k.part FROM dbo.keyed AS k ORDER BY k.due, k.name DESC;",
        "SELECT TOP (5) k.part FROM dbo.keyed AS k ORDER BY k.due, k.name;",
    ),
    (
        "readpast_level",
        "SELECT h.due FROM dbo.heap AS h WITH (READPAST);",
        "SELECT h.due FROM dbo.heap AS h WITH (READPAST, READCOMMITTEDLOCK);",
    ),
    (
        "readpast_level",
        "SET TRANSACTION ISOLATION LEVEL SNAPSHOT;\nSELECT h.due FROM dbo.heap AS h WITH (READPAST);",
        READ_COMMITTED + "SELECT h.due FROM dbo.heap AS h WITH (READPAST);",
    ),
    (
        "catalog_collation",
        "SELECT CONCAT(h.name, c.name) AS a FROM dbo.heap AS h CROSS JOIN sys.columns AS c;",
        "SELECT CONCAT(h.name, c.name COLLATE DATABASE_DEFAULT) AS a FROM dbo.heap AS h CROSS JOIN sys.columns AS c;",
    ),
    (
        "catalog_collation",
        "SELECT h.due FROM dbo.heap AS h INNER JOIN sys.columns AS c ON h.name = c.name;",
        "SELECT h.due FROM dbo.heap AS h INNER JOIN sys.columns AS c ON h.name = c.name COLLATE DATABASE_DEFAULT AND c.name = N'a';",
    ),
    (
        "catalog_collation",
        "SELECT c.name FROM sys.columns AS c WHERE LEFT(c.name, 3) IN (SELECT h.name FROM dbo.heap AS h);",
        "SELECT c.name FROM sys.columns AS c WHERE LEFT(c.name, 3) COLLATE DATABASE_DEFAULT IN (SELECT h.name FROM dbo.heap AS h);",
    ),
    (
        "throw_percent",
        "DECLARE @message nvarchar(200) = CONCAT(N'No ', @name);\nTHROW 51001, @message, 1;",
        "DECLARE @message nvarchar(200) = CONCAT(N'No ', REPLACE(@name, N'%', N'%%'), @count);\nTHROW 51001, @message, 1;",
    ),
    (
        "throw_percent",
        "DECLARE @message nvarchar(200);\nSELECT @message = h.name FROM dbo.heap AS h;\nTHROW 51001, @message, 1;",
        "DECLARE @message nvarchar(200) = @name;\nSET @message = REPLACE(@message, N'%', N'%%');\nTHROW 51001, @message, 1;",
    ),
    ("throw_percent", "THROW 51001, N'{queue_name} is full.', 1;", "THROW 51001, N'It is 100 %% full.', 1;"),
    (
        "output_into",
        "DELETE FROM dbo.heap OUTPUT deleted.due WHERE number = 1;",
        "DECLARE @rows TABLE (due datetime);\nDELETE FROM dbo.heap OUTPUT deleted.due INTO @rows (due) WHERE number = 1;",
    ),
    ("throw_only", "RAISERROR (N'Wrong.', 16, 1);", "THROW 51001, N'Wrong.', 1;"),
    (
        "variant_argument",
        "DECLARE @said nvarchar(max) = @name;\nEXEC tSQLt.AssertEquals @Expected = N'a', @Actual = @said;",
        "DECLARE @said nvarchar(100) = @name;\nEXEC tSQLt.AssertEquals @Expected = N'a', @Actual = @said;",
    ),
    (
        "variant_argument",
        "DECLARE @said xml = N'<a/>';\nEXEC tSQLt.AssertEquals @said, 1;",
        "DECLARE @said nvarchar(max) = @name;\nEXEC tSQLt.AssertEqualsString @Expected = N'a', @Actual = @said;",
    ),
    (
        "later_function",
        "SELECT STRING_AGG(h.name, N',') AS a FROM dbo.heap AS h;",
        "SELECT MAX(h.name) AS a FROM dbo.heap AS h;",
    ),
    (
        "keyed_join",
        "DECLARE @due TABLE (number bigint NOT NULL);\nDELETE TOP (5) h FROM @due AS d INNER JOIN dbo.heap AS h ON d.number = h.number;",
        "DECLARE @due TABLE (number bigint NOT NULL PRIMARY KEY);\nDELETE TOP (5) h FROM @due AS d INNER JOIN dbo.heap AS h ON d.number = h.number;",
    ),
    (
        "keyed_join",
        "UPDATE TOP (5) h SET h.version = 1 FROM dbo.heap AS h INNER JOIN dbo.keyed AS k ON h.name = k.name;",
        "UPDATE TOP (5) h SET h.version = 1 FROM dbo.heap AS h INNER JOIN dbo.keyed AS k ON h.name = k.name AND k.part = 1;",
    ),
    ("lock_escalation", "DELETE TOP (4000) FROM dbo.wide;", "DELETE TOP (4000) FROM dbo.kept;"),
    ("lock_escalation", "DELETE TOP (5) FROM dbo.wide;", "DELETE FROM dbo.wide WHERE name = @name;"),
    (
        "named_constraint",
        "CREATE TABLE dbo.new_one (a int NOT NULL PRIMARY KEY, b int NOT NULL);",
        "CREATE TABLE dbo.new_one (a int NOT NULL CONSTRAINT new_one_key PRIMARY KEY, b int NOT NULL);",
    ),
    (
        "named_constraint",
        "ALTER TABLE dbo.heap ADD kind int NOT NULL DEFAULT (1);",
        "ALTER TABLE dbo.heap ADD kind int NOT NULL CONSTRAINT heap_kind DEFAULT (1), CONSTRAINT heap_key UNIQUE (number);",
    ),
    (
        "named_constraint",
        "ALTER TABLE dbo.heap ADD CHECK (number > 0);",
        "DECLARE @rows TABLE (a int NOT NULL PRIMARY KEY, b int NOT NULL DEFAULT (1));",
    ),
    ("throw_only", "PRINT N'Done.';", "SELECT N'Done.' AS said;"),
]
ODD = "SELECT TOP (5) h.number FROM dbo.heap AS h ORDER BY h.name;"
EXCUSES = {
    "excused": f"-- rule ordered_top: the table is small.\n{ODD}",
    "without a reason": f"-- rule ordered_top:\n{ODD}",
    "of nothing": "-- rule ordered_top: the table is small.\nSELECT h.number FROM dbo.heap AS h;",
    "of no rule": "-- rule no_such_rule: the table is small.\nSELECT h.number FROM dbo.heap AS h;",
}
FILES = {
    "set_options wrong": "SELECT 1 AS a;\nGO\n",
    "set_options half": "SET ANSI_NULLS ON;\nGO\nSELECT 1 AS a;\nGO\n",
    "set_options right": f"{OPTIONS}SELECT 1 AS a;\nGO\n",
}

MODULE = "CREATE OR ALTER PROCEDURE dbo.[{0}]\nWITH EXECUTE AS {0}\nAS\nSELECT 1 AS a;\nGO\n"
#: whom a module runs as
USERS = ("OWNER", "SELF", "N'dbo'", "CALLER", "N'somebody'")


def sample(path: str, body: str) -> Source:
    head = f"CREATE OR ALTER PROCEDURE dbo.[{path}]\n    @count int,\n    @name nvarchar(100)\nAS\n"
    return Source(path, f"{OPTIONS}{head}{body}\nGO\n", ruled=True)


@pytest.fixture(scope="module")
def findings() -> list[Finding]:
    """Return the findings of all samples, compiled in one process."""
    try:
        prepare_runtime()
    except UnsupportedMachine as reason:
        pytest.skip(str(reason))
    samples = [
        sample(f"{rule} {number} {kind}", body)
        for number, (rule, *bodies) in enumerate(SAMPLES)
        for kind, body in zip("wr", bodies, strict=True)
    ]
    samples += [sample(f"exception {name}", body) for name, body in EXCUSES.items()]
    samples += [sample(f"{TESTS}/{name}", body) for name, body in (("sorted", ODD), ("printed", "PRINT N'Done.';"))]
    files = [Source(f"deploy/operations/{name}", text, ruled=True) for name, text in FILES.items()]
    modules = [
        Source("user.sql", "CREATE USER somebody WITHOUT LOGIN;\nGO\n"),
        *(Source(f"module as {user}", MODULE.format(user), ruled=True) for user in USERS),
    ]
    (found,) = compile_sets([[Source("tables.sql", TABLES), *samples, *files, *modules]])
    return found


def said(findings: list[Finding], path: str) -> list[str]:
    return [finding.message for finding in findings if finding.path == path]


def test_every_rule_has_a_sample_a_reason_and_a_document():
    tried = {rule for rule, _, _ in SAMPLES} | {"set_options", "as_owner"}

    assert {rule.name for rule in RULES} == tried
    assert all(rule.reason and rule.document for rule in RULES)


@pytest.mark.parametrize(
    "number", range(len(SAMPLES)), ids=[f"{rule}-{number}" for number, (rule, _, _) in enumerate(SAMPLES)]
)
def test_a_rule_finds_the_wrong_sample_and_nothing_in_the_right_one(findings, number):
    rule = SAMPLES[number][0]

    wrong, right = (said(findings, f"{rule} {number} {kind}") for kind in "wr")

    assert any(message.startswith(f"rule {rule}:") for message in wrong), wrong
    assert [
        message for message in right if not message.startswith("rule bounded_change:") or rule == "bounded_change"
    ] == []


def test_a_file_of_operations_begins_with_the_options_of_its_session(findings):
    refused = [name for name in FILES if said(findings, f"deploy/operations/{name}")]

    assert refused == ["set_options wrong", "set_options half"]


def test_no_module_runs_as_the_owner_of_the_database(findings):
    refused = [user for user in USERS if said(findings, f"module as {user}")]

    assert refused == ["OWNER", "SELF", "N'dbo'"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("excused", []),
        ("without a reason", ["gives no reason", "no index gives"]),
        ("of nothing", ["excuses nothing"]),
        ("of no rule", ["excuses nothing"]),
    ],
)
def test_an_exception_needs_a_reason_and_something_to_excuse(findings, name, expected):
    messages = said(findings, f"exception {name}")

    assert len(messages) == len(expected)
    assert all(any(part in message for message in messages) for part in expected)


def test_rules_about_other_sessions_and_many_rows_leave_the_tests_alone(findings):
    assert said(findings, f"{TESTS}/sorted") == []
    assert [message.partition(":")[0] for message in said(findings, f"{TESTS}/printed")] == ["rule throw_only"]


def test_the_samples_show_no_other_fault_than_a_rule(findings):
    assert [str(finding) for finding in findings if not finding.message.startswith("rule ")] == []
