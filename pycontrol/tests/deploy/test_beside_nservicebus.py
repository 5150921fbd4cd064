"""A deployment beside the tables that NServiceBus's installer made, column by column as they were recorded."""

import pytest

from rowpost.deploy.apply import apply
from rowpost.deploy.verify import verify
from rowpost.settings.environment import QueueSettings
from tests.support.program import Program, environment_file
from tests.support.recorded_rows import recorded

TABLES = recorded("tables")["tables"]
#: a queue's table and its delayed table, and the error queue, as an endpoint `Net.Sales` makes them
NAMES = ("Net.Sales", "Net.Sales.Delayed", "error", "SubscriptionRouting")
#: their indexes that apply does not make: rows are found by seq, and a second index would cost each send
MISSING = {("Net.Sales", "btree (id)"), ("error", "btree (id)")}


@pytest.fixture
def installed(shop, sql):
    """The database in which the installer has run."""
    if shop.engine == "sqlserver":
        pytest.skip("the tables were recorded on PostgreSQL")
    for name in NAMES:
        sql.run(made_by_installer(name))
        for index in TABLES[name]["indexes"]:
            sql.run(index)
    return sql


def made_by_installer(name: str) -> str:
    columns = []
    for column in TABLES[name]["columns"]:
        length = f"({column['length']})" if column["length"] else ""
        kind = "serial" if (column["default"] or "").startswith("nextval") else column["type"] + length
        default = f" DEFAULT {column['default']}" if column["default"] and kind != "serial" else ""
        columns.append(f"{column['name']} {kind}{' NOT NULL' if column['nullable'] == 'NO' else ''}{default}")
    return f'CREATE TABLE public."{name}" ({", ".join(columns)})'


def indexes_of(sql, name: str) -> list[str]:
    rows = sql.run(f"SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename = '{name}'")
    return [text.partition("USING")[2].strip() for (text,) in rows]


def columns_of(sql, name: str) -> dict[str, tuple]:
    rows = sql.run(
        "SELECT column_name, data_type, character_maximum_length, is_nullable FROM information_schema.columns "
        f"WHERE table_schema = 'public' AND table_name = '{name}'"
    )
    return {column: tuple(rest) for column, *rest in rows}


def test_what_apply_makes_differs_from_the_recorded_tables_in_few_things(shop, database, sql):
    if shop.engine == "sqlserver":
        pytest.skip("the tables were recorded on PostgreSQL")
    apply(database, shop.plan(QueueSettings("Net.Sales", delayed=True), QueueSettings("error")))

    different = {}
    for name in NAMES:
        made = columns_of(sql, name)
        theirs = {each["name"]: (each["type"], each["length"], each["nullable"]) for each in TABLES[name]["columns"]}
        different |= {(name, column): (made.get(column), theirs.get(column)) for column in made.keys() | theirs.keys()
                      if made.get(column) != theirs.get(column)}  # fmt: skip
    wider = (("bigint", None, "NO"), ("integer", None, "NO"))  # theirs ends after 2,147,483,647 messages
    assert different == {("Net.Sales", "seq"): wider, ("error", "seq"): wider}
    indexes = {name: [index.partition("USING")[2].strip() for index in TABLES[name]["indexes"]] for name in NAMES}
    missing = {(name, index) for name in NAMES for index in indexes[name] if index not in indexes_of(sql, name)}
    assert missing == MISSING


def test_verify_finds_nothing_but_remarks(shop, database, installed):
    declared = shop.plan(QueueSettings("Net.Sales", delayed=True), QueueSettings("error"))
    apply(database, declared)

    found = verify(database, declared)

    assert [(each.kind, each.subject, each.remark) for each in found] == [
        ("row_version_32_bit", "queue Net.Sales", True), ("row_version_32_bit", "queue error", True),
    ]  # fmt: skip
    for each in found:
        installed.run(each.remedy)
    assert verify(database, declared) == []


def test_the_command_succeeds_and_shows_them(shop, database, installed, tmp_path):
    environment = environment_file(tmp_path, rest="queues: {error: {}}\n")
    program = Program(environment, tmp_path, SHOP_URL=shop.settings.url)
    assert program("apply", "--yes").code == 0

    plain, as_json = program("verify"), program("verify", "--json")

    assert (plain.code, as_json.code) == (0, 0)
    assert "remark: seq has 32 bits" in plain.out and "clean, everything is as planned" in plain.out
    (document,) = as_json.lines
    assert (document["clean"], [each["remark"] for each in document["findings"]]) == (True, [True])
