"""What the T-SQL must look like for SQL Server, where no engine at hand obeys locks, hints and collations as SQL Server does."""

import re
from pathlib import Path

import pytest

from rowpost.database.sql_folder import sql_folder
from rowpost.deploy.runner import code_only
from rowpost.deploy.scripts import load_scripts, read_script
from rowpost.deploy.sql_text import split_batches

OPERATIONS = Path(__file__).parents[3] / "deploy" / "operations"
QUEUE_OPTIONS = "STATISTICS_NORECOMPUTE = ON"


def texts() -> dict[str, str]:
    """Every script of T-SQL without its comments, by its path."""
    folder = sql_folder()
    paths = [path for part in ("tables", "procedures") for path in sorted((folder / part).rglob("*.sql"))]
    return {path.relative_to(folder).as_posix(): code_only(path.read_text(encoding="utf-8")) for path in paths}


def procedure(name: str) -> str:
    return code_only(read_script("sqlserver", f"procedures/{name}.sql").text)


@pytest.mark.parametrize("name", ["delayed/move_due_messages", "delayed/receive_due_messages"])
def test_due_messages_are_selected_in_the_order_of_their_index_and_by_a_seek(name):
    selects = re.findall(r"SELECT TOP.*?ORDER BY ([^\n]*)", procedure(name), re.DOTALL)
    hints = re.findall(r"\{delayed_table\} AS d WITH \(([^)]*)\)", procedure(name))

    assert selects and set(selects) == {"d.Due"}
    assert hints and all("FORCESEEK" in each for each in hints)


def test_row_versions_are_compared_with_variables_of_their_type():
    literal = re.compile(r"(?:[<>]=?|=)\s*-9223372036854775808(?!\s*;)")
    compared = {name for name, text in texts().items() if literal.search(re.sub(r"DECLARE @\w+ bigint = -9223372036854775808", "", text))}

    assert compared == set()


@pytest.mark.parametrize("name", ["queue/purge_queue", "queue/purge_expired"])
def test_a_purge_takes_fewer_rows_than_the_locks_that_escalate(name):
    limits = [int(each) for each in re.findall(r"@count NOT BETWEEN 1 AND (\d+)", procedure(name))]

    assert limits and max(limits) < 5_000


def test_expired_messages_are_locked_by_row_version_as_receivers_lock_them():
    delete = re.search(r"DELETE q\nFROM @expired AS e\n.*?;", procedure("queue/purge_expired"), re.DOTALL)

    assert delete and "Expires" not in delete[0]
    assert "WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)" in delete[0]


def test_locked_rows_are_skipped_under_read_committed_snapshot_too():
    files = {**texts(), **{path.name: path.read_text(encoding="utf-8") for path in OPERATIONS.glob("*.sql")}}
    hints = [(name, each) for name, text in files.items() for each in re.findall(r"WITH \(([^)]*\bREADPAST\b[^)]*)\)", text)]

    assert len(hints) > 10
    assert [(name, each) for name, each in hints if "READCOMMITTEDLOCK" not in each] == []


@pytest.mark.parametrize("path", sorted(OPERATIONS.glob("*.sql")), ids=lambda path: path.name)
def test_a_script_of_operations_sets_what_sqlcmd_and_agent_leave_off(path):
    first, *rest = split_batches(path.read_text(encoding="utf-8"), "sqlserver")

    assert code_only(first.text).strip() == "SET ANSI_NULLS, QUOTED_IDENTIFIER ON;"
    assert rest


def test_texts_of_errors_escape_the_percent_sign():
    named = re.compile(r"\{(?!correlation_|transitional_)|(?<!%)%(?!%)")  # a property of a saga is an identifier
    escaped = re.compile(r"@message(?: nvarchar\(2048\))? = REPLACE\(.*?, N'%', N'%%'\s*\);", re.DOTALL)
    thrown = {name: text for name, text in texts().items() if "THROW" in text}
    by_variable = {name for name, text in thrown.items() if re.search(r"THROW \d+, @message, 1;", text)}
    literals = [(name, each) for name, text in thrown.items() for each in re.findall(r"THROW \d+, N'((?:[^']|'')*)'", text)]

    assert len(by_variable) >= 10
    assert {name for name in by_variable if not escaped.search(thrown[name])} == set()
    assert [(name, each) for name, each in literals if named.search(each)] == []


def test_names_of_the_catalog_get_the_database_s_collation_where_they_are_joined_with_names_of_tables():
    joined = re.findall(r"(?:c\.name|QUOTENAME\(t\.name\)|TYPE_NAME\([^)]*\)|QUOTENAME\(USER_NAME\([^\n]*?\)\)), ?N?'?", procedure("registry/check_queue"))

    assert joined == []


@pytest.mark.parametrize("name", ["create", "create_delayed"])
def test_a_new_table_never_locks_as_a_whole(name):
    script = getattr(load_scripts("sqlserver"), name).text

    made = re.search(r"IS NULL[^\n]*\nBEGIN\n(.*?)\nEND;\nGO\n", script, re.DOTALL)

    assert made and re.search(r"ALTER TABLE \{\w+_table\} SET \(LOCK_ESCALATION = DISABLE\);", made[1])


def test_the_indexes_of_a_queue_do_not_update_their_statistics():
    text = code_only(load_scripts("sqlserver").create.text)

    indexes = re.findall(r"CREATE (?:NON)?CLUSTERED INDEX .*?;", text, re.DOTALL)

    assert len(indexes) == 3
    assert [each for each in indexes if QUEUE_OPTIONS not in each] == []


def test_dbo_owns_the_schema_whoever_deploys():
    assert "CREATE SCHEMA rowpost AUTHORIZATION dbo;" in texts()["tables/001_schema.sql"]
