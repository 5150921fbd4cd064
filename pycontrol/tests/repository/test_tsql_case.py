"""Each name has one spelling, so that the T-SQL runs on a server with a case-sensitive collation."""

import re
from collections import defaultdict
from pathlib import Path

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


def name(path: Path) -> str:
    return path.relative_to(sql_folder()).as_posix()


def code(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return "".join(text[t.start : t.end] for t in tokens(text, "sqlserver") if t.kind != "comment")


def test_a_variable_is_spelt_in_one_way_per_file():
    spellings = defaultdict(set)
    for path in FILES:
        for variable in VARIABLE.findall(code(path)):
            spellings[name(path), variable.lower()].add(variable)

    assert {where: found for where, found in spellings.items() if len(found) > 1} == {}


def misspelt_columns(path: Path) -> list[str]:
    text = code(path)
    of_queue = re.search(r"\{(?:queue|delayed)_table\} AS (\w)\b", text)
    found = [(match[0][0], match[1]) for match in COLUMN.finditer(text)]

    return [
        column
        for alias, column in found
        if column not in COLUMNS and (column not in OWN or (of_queue and alias == of_queue[1]))
    ]


def test_a_column_of_a_queue_table_is_spelt_as_the_table_spells_it():
    assert {name(path): wrong for path in FILES if (wrong := misspelt_columns(path))} == {}
