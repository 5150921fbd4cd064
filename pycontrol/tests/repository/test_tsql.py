"""The T-SQL compiles offline with Microsoft's compiler, and the check finds mistakes."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rowpost.database.dialects.sqlserver.session import SESSION
from rowpost.database.dialects.sqlserver.transactions import (
    BEGIN,
    CHECK_OPEN,
    COMMIT,
    REPLACED,
    ROLL_BACK_REPLACED,
    SessionState,
    is_whole,
    opening,
    restore,
)
from rowpost.database.sql_folder import sql_folder
from rowpost.deploy.sql_text import tokens
from tests.support.documents import blocks, pages
from tests.support.tsql.compiler import Finding, Source, compile_sets, operations, read_sources, tree_sets
from tests.support.tsql.runtime import UnsupportedMachine, prepare_runtime

pytestmark = [
    pytest.mark.lint,
    pytest.mark.timeout(900),
]  # every procedure is compiled several times, which takes minutes beside other tests
SETTINGS = "SET NOCOUNT, XACT_ABORT ON;"
COLUMN = re.compile(r"(?<=\b[a-z]\.)[A-Za-z_]+\b(?!\()")
PARAMETER = re.compile(r"(?<=@)\w+(?= \w+.*,? ?(?:--.*)?\n)")


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    try:
        prepare_runtime()
    except UnsupportedMachine as reason:
        pytest.skip(str(reason))


def procedures() -> list[Source]:
    return read_sources(sql_folder() / "procedures")


def opened(source: Source, statement: str, expression: str) -> str:
    """Add a statement at the start of the body. A function gets the expression, because a function cannot call procedures."""
    if "CREATE OR ALTER FUNCTION" in source.text:
        return source.text.replace("\nBEGIN\n", f"\nBEGIN\n    DECLARE @wrong nvarchar(max) = {expression};\n", 1)
    return source.text.replace(f"\n{SETTINGS}\n", f"\n{SETTINGS}\n\n{statement}\n", 1)


def with_wrong_column(source: Source) -> str:
    for token in tokens(source.text, "sqlserver"):
        code = source.text[token.start : token.end]
        if token.kind == "code" and COLUMN.search(code):
            return source.text[: token.start] + COLUMN.sub("no_such_column", code, count=1) + source.text[token.end :]
    if "INSERT INTO {queue_table} (Id" in source.text:
        return source.text.replace("{queue_table} (Id", "{queue_table} (no_such_column", 1)
    return opened(source, "SELECT q.no_such_column FROM rowpost.queue AS q;", "")


def with_wrong_table(source: Source) -> str:
    select = "(SELECT MAX(t.a) FROM rowpost.no_such_table AS t)"
    return opened(source, f"DECLARE @wrong int = {select};", select)


def with_wrong_procedure(source: Source) -> str:
    if "EXEC rowpost._" in source.text:
        return source.text.replace("EXEC rowpost._", "EXEC rowpost.no_such_", 1)
    return opened(source, "EXEC rowpost.no_such_procedure;", "rowpost.no_such_function(1)")


def with_wrong_argument(source: Source) -> str:
    return opened(source, "EXEC rowpost.get_version @no_such_parameter = 1;", "rowpost._object_fingerprint(N'table')")


def with_argument_left_out(source: Source) -> str:
    return opened(source, "EXEC rowpost.record_version @schema_version = 1;", "rowpost._object_fingerprint()")


def with_parameter_renamed(source: Source) -> str:
    head, end, body = source.text.partition("\nAS\n")
    if not PARAMETER.search(head + "\n"):
        return opened(source, "SELECT @no_such_parameter AS wrong;", "@no_such_parameter")
    return PARAMETER.sub("no_such_parameter", head + "\n", count=1).rstrip("\n") + end + body


def with_syntax_error(source: Source) -> str:
    return opened(source, "SELECT FROM WHERE;", "(SELECT")


MISTAKES: list[Callable[[Source], str]] = [
    with_wrong_column,
    with_wrong_table,
    with_wrong_procedure,
    with_wrong_argument,
    with_argument_left_out,
    with_parameter_renamed,
    with_syntax_error,
]

#: statements in a procedure with a parameter @json, and a part of the expected finding
EASILY_MISSED = {
    "SELECT c.no_such_column FROM sys.columns AS c;": "[sys].[columns].[no_such_column]",
    "SELECT m.text FROM sys.messages AS m;": "[sys].[messages]",
    "SELECT m.b FROM OPENJSON(@json) WITH (a int) AS m;": "m.b",
    "INSERT INTO rowpost.version (schema_version, tool_version) VALUES (1);": "2 columns are named and 1 values",
    "EXEC sys.sp_executesql N'SELECT @a', N'@a int', @b = 1;": "declares @a and is given @b",
    "EXEC rowpost.[peek_queue:Sample] @after_row_version = 1;": "[peek_queue:Sample] is called without @count",
    "SELECT s.Nothing FROM dbo.Sample AS s;": "[dbo].[Sample].[Nothing]",
}

OUTSIDE_PROCEDURES = [
    Source("grant.sql", "GRANT EXECUTE ON rowpost.no_such_procedure TO rowpost_reader;\n"),
    Source("role.sql", "GRANT EXECUTE ON rowpost.get_version TO no_such_role;\n"),
    Source("call.sql", "EXEC rowpost.unregister_queue @no_such_parameter = N'x';\nGO\n"),
    Source("index.sql", "IF 1 = 1\n    CREATE INDEX wrong ON {queue_table} (no_such_column);\n"),
    Source("guarded.sql", "IF 1 = 0 SET NOEXEC ON;\nGO\nCREATE TABLE rowpost.wrong (a no_such_type);\nGO\n"),
    Source("placeholder.sql", "SELECT {queue_name};\n"),
]


def renamed(text: str, suffix: str) -> str:
    """Give a procedure another name, so that both versions can be in one model."""
    name = re.compile(r"(CREATE OR ALTER (?:PROCEDURE|FUNCTION) rowpost\.)(?:\[([^\]]+)\]|(\w+))")
    return name.sub(lambda match: f"{match[1]}[{match[2] or match[3]}~{suffix}]", text, count=1)


def copies_with_mistakes() -> list[Source]:
    return [
        Source(f"{source.path} {mistake.__name__}", renamed(mistake(source), mistake.__name__))
        for mistake in MISTAKES
        for source in procedures()
    ]


def trials() -> list[Source]:
    head = "CREATE OR ALTER PROCEDURE rowpost.[{name}]\n    @json nvarchar(max)\nAS\n"
    return [
        Source(statement, head.replace("{name}", f"trial {number}") + statement + "\nGO\n")
        for number, statement in enumerate(EASILY_MISSED)
    ]


def without_table() -> list[Source]:
    return [
        source
        for source in read_sources(sql_folder())
        if Path(source.path).name != "create.sql" and "tests/" not in source.path
    ]


WRONG_PAGE = Source("wrong.md", "SELECT FROM WHERE;", ruled=False)


def shown() -> list[Source]:
    """Return the statements that pages show to DBAs, and a wrong one. Their catalog views are not all declared."""
    found = [block for page in pages() for block in blocks(page) if block.language == "tsql"]
    return [*(Source(block.name, block.text, ruled=False) for block in found), WRONG_PAGE]


@pytest.fixture(scope="module")
def answers(compiler: None) -> list[list[Finding]]:
    """Return the findings of each set: both servers' scripts, these with all mistakes, and these without a queue's table.

    One process compiles all of them: .NET compiles itself first, which takes longer than a set does.
    """
    scripts = [replace(script, ruled=False) for script in operations()]
    wrong = Source("wrong.sql", scripts[0].text.replace("RowVersion", "no_such_column"))
    product = read_sources(sql_folder())
    mistakes = [*product, *copies_with_mistakes(), *trials(), *OUTSIDE_PROCEDURES, *scripts, *shown(), wrong]
    return compile_sets([*tree_sets(sql_folder()), mistakes, without_table()])


@pytest.fixture(scope="module")
def findings(answers: list[list[Finding]]) -> list[Finding]:
    """Return the findings of the product together with all mistakes."""
    return answers[2]


def test_all_tsql_compiles_and_keeps_the_rules_without_a_finding(answers):
    files = [len(sources) for sources in tree_sets(sql_folder())]

    assert answers[:2] == [[], []]
    assert min(files) > len(procedures())


def test_each_mistake_in_a_copy_of_each_procedure_is_found(findings):
    reported = {finding.path for finding in findings}

    missed = [copy.path for copy in copies_with_mistakes() if copy.path not in reported]

    assert missed == []


def test_nothing_is_reported_of_files_without_a_mistake(findings):
    innocent = {source.path for source in read_sources(sql_folder())}

    assert [finding for finding in findings if finding.path in innocent] == []


@pytest.mark.parametrize(("statement", "said"), EASILY_MISSED.items())
def test_a_mistake_that_is_easily_missed_is_found(findings, statement, said):
    about = [finding.message for finding in findings if finding.path == statement]

    assert any(said in message for message in about), about


def test_what_stands_outside_procedures_is_compiled_too(findings):
    reported = {finding.path for finding in findings}

    assert {source.path for source in OUTSIDE_PROCEDURES} - reported == set()


def test_a_table_made_behind_a_guard_is_part_of_the_model(answers):
    found = answers[3]

    assert any("[dbo].[Sample]" in finding.message for finding in found)


def test_the_operations_scripts_compile_and_a_mistake_in_one_is_found(findings):
    scripts = {source.path for source in operations()}

    assert {finding.path for finding in findings} & {*scripts, "wrong.sql"} == {"wrong.sql"}


def test_the_statements_that_pages_show_have_no_syntax_error(findings):
    named = {source.path for source in shown()}

    assert len(named) > 1
    assert {
        finding.path for finding in findings if finding.path in named and finding.message.startswith("syntax:")
    } == {WRONG_PAGE.path}


def around_transactions() -> dict[str, str]:
    """The batches that the dialect sends around calls. CREATE PROCEDURE takes all but USE."""
    first = SessionState(5496, "us_english", 7, "20030102", -1, "shop", "dbo")
    other = SessionState(~5496 & 0x7FFE, "Deutsch", 1, "20030201", 5, "shop", "guest")
    found = {f"begin {how}": f"{opening(how, first, reads_state=True)} SELECT {is_whole(how)};" for how in BEGIN}
    found |= {
        f"commit {how}": f"BEGIN TRY {CHECK_OPEN} {COMMIT[how]} END TRY BEGIN CATCH THROW; END CATCH;" for how in COMMIT
    }
    return found | {
        "session": SESSION,
        "restore": restore(first, other),
        "replaced": f"{ROLL_BACK_REPLACED} SELECT CASE WHEN {REPLACED} THEN 1 ELSE 0 END;",
    }


def test_what_is_sent_around_a_transaction_compiles():
    texts = around_transactions()

    def procedure(text: str) -> str:
        return f"CREATE OR ALTER PROCEDURE dbo.around\nAS\nBEGIN\n{text}\nEND;\n"

    found = compile_sets([[Source(f"{name}.sql", procedure(text))] for name, text in texts.items()])
    (broken,) = compile_sets(
        [[Source("broken.sql", procedure("SELECT @@TRANSCOUNT AS n, CURRENT_TRANSACTION_ID( AS m;"))]]
    )

    assert [findings for findings in found if findings] == []
    assert broken
