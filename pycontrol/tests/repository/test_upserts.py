"""The check of upserts in autocommit finds a wrong sample, and nothing in a right one, nor in the package."""

from pathlib import Path

import pytest

import rowpost
from rowpost.database.sql_folder import sql_folder
from tests.support.upserts import in_autocommit, upserts

CALL = 'database.call("subscribe", topic="t")\n'


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (f"def store():\n    {CALL}", [(2, "subscribe")]),
        (f"def store():\n    with database.transaction():\n        pass\n    {CALL}", [(4, "subscribe")]),
        (f"def store():\n    # rule upsert_in_transaction:\n    {CALL}", [(3, "subscribe")]),
        ("# rule upsert_in_transaction: the caller began one\nother()\n", [(1, "")]),
        (f"def store():\n    with database.transaction():\n        {CALL}", []),
        (f"def store():\n    database.begin()\n    {CALL}", []),
        (f"def store():\n    # rule upsert_in_transaction: the caller began one\n    {CALL}", []),
        ('def read():\n    database.call("list_subscriptions")\n', []),
    ],
)
def test_a_call_of_an_upsert_outside_of_a_transaction_is_found(source, expected):
    found = in_autocommit(source, {"subscribe"})

    assert found == expected


def test_the_upserts_are_read_from_the_procedures():
    names = upserts(sql_folder() / "procedures")

    assert {"subscribe", "record_failure", "renew_ownership"} <= names
    assert "receive_messages" not in names


def test_the_package_calls_every_upsert_in_a_transaction():
    package = Path(rowpost.__file__).parent
    names = upserts(sql_folder() / "procedures")

    found = {
        f"{path.relative_to(package)}:{line} {name}"
        for path in package.rglob("*.py")
        for line, name in in_autocommit(path.read_text(encoding="utf-8"), names)
    }

    assert found == set()
