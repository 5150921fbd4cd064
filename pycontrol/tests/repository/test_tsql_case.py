"""Each name has one spelling, so that the T-SQL runs on a server with a case-sensitive collation."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from rowpost.database.sql_folder import sql_folder
from rowpost.deploy.sql_text import tokens

FILES = sorted(path for path in sql_folder().rglob("*.sql") if "postgresql" not in path.parts)
VARIABLE = re.compile(r"(?<!@)@[A-Za-z_]\w*")
#: columns of NServiceBus's tables, which T-SQL procedures must spell like the tables
COLUMNS = (
    "Id", "CorrelationId", "ReplyToAddress", "Recoverable", "Expires", "Headers", "Body", "BodyString", "RowVersion", "Due",
    "QueueAddress", "Endpoint", "Topic",
)  # fmt: skip
COLUMN = re.compile(rf"\b[a-z]\.({'|'.join(COLUMNS)})\b", re.IGNORECASE)
#: rowpost's own results and tables have some of these names in lower case
OWN = {"id", "recoverable", "expires", "headers", "body", "due", "endpoint", "topic"}


def code(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return "".join(text[t.start : t.end] for t in tokens(text, "sqlserver") if t.kind != "comment")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(sql_folder()).as_posix())
def test_a_variable_is_spelt_in_one_way_per_file(path):
    spellings = defaultdict(set)
    for name in VARIABLE.findall(code(path)):
        spellings[name.lower()].add(name)

    assert {name: found for name, found in spellings.items() if len(found) > 1} == {}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(sql_folder()).as_posix())
def test_a_column_of_a_queue_table_is_spelt_as_the_table_spells_it(path):
    text = code(path)
    of_queue = re.search(r"\{(?:queue|delayed)_table\} AS (\w)\b", text)
    found = [(match[0][0], match[1]) for match in COLUMN.finditer(text)]

    wrong = [name for alias, name in found if name not in COLUMNS and (name not in OWN or (of_queue and alias == of_queue[1]))]
    assert wrong == []
