"""What the T-SQL must look like for SQL Server beyond the rules of tests/support/tsql/rules.py: no engine at hand obeys its hints."""

import re

import pytest

from rowpost.deploy.scripts import load_scripts, read_script
from rowpost.deploy.sql_text import code_only

QUEUE_OPTIONS = "STATISTICS_NORECOMPUTE = ON"


def procedure(name: str) -> str:
    return code_only(read_script("sqlserver", f"procedures/{name}.sql").text)


@pytest.mark.parametrize("name", ["delayed/move_due_messages", "delayed/receive_due_messages"])
def test_due_messages_are_selected_in_the_order_of_their_index_and_by_a_seek(name):
    selects = re.findall(r"SELECT TOP.*?ORDER BY ([^\n]*)", procedure(name), re.DOTALL)
    hints = re.findall(r"\{delayed_table\} AS d WITH \(([^)]*)\)", procedure(name))

    assert selects and set(selects) == {"d.Due"}
    assert hints and all("FORCESEEK" in each for each in hints)


@pytest.mark.parametrize("name", ["queue/purge_queue", "queue/purge_expired"])
def test_a_purge_takes_fewer_rows_than_the_locks_that_escalate(name):
    limits = [int(each) for each in re.findall(r"@count NOT BETWEEN 1 AND (\d+)", procedure(name))]

    assert limits and max(limits) < 5_000


def test_expired_messages_are_locked_by_row_version_as_receivers_lock_them():
    delete = re.search(r"DELETE q\nFROM @expired AS e\n.*?;", procedure("queue/purge_expired"), re.DOTALL)

    assert delete and "Expires" not in delete[0]
    assert "WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)" in delete[0]


@pytest.mark.parametrize("name", ["create", "create_delayed"])
def test_a_new_table_never_locks_as_a_whole(name):
    script = next(each.text for each in load_scripts("sqlserver").queue.tables if each.stem == name)

    made = re.search(r"IS NULL[^\n]*\nBEGIN\n(.*?)\nEND;\nGO\n", script, re.DOTALL)

    assert made and re.search(r"ALTER TABLE \{\w+_table\} SET \(LOCK_ESCALATION = DISABLE\);", made[1])


def test_the_indexes_of_a_queue_do_not_update_their_statistics():
    text = code_only(load_scripts("sqlserver").queue.tables[0].text)

    indexes = re.findall(r"CREATE (?:NON)?CLUSTERED INDEX .*?;", text, re.DOTALL)

    assert len(indexes) == 3
    assert [each for each in indexes if QUEUE_OPTIONS not in each] == []


def test_dbo_owns_the_schema_whoever_deploys():
    assert "CREATE SCHEMA rowpost AUTHORIZATION dbo;" in read_script("sqlserver", "tables/001_schema.sql").text
