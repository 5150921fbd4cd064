"""A deployment beside the tables that NServiceBus's installer made, column by column as they were recorded."""

import pytest

from rowpost.deploy.apply import apply
from rowpost.deploy.verify import verify
from rowpost.settings.environment import QueueSettings
from rowpost.wire.address import DEFAULT_SCHEMA
from tests.support.nservicebus_tables import TABLES as INSTALLERS
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

    kinds = ("expires_index_missing", "row_version_32_bit", "settings_missing")
    assert [(each.kind, each.subject, each.remark) for each in found] == [
        (kind, f"queue {name}", True) for name in ("Net.Sales", "error") for kind in kinds
    ]
    for each in found:
        if each.remedy.startswith("rowpost queue maintain"):
            database.call("maintain_queue", each.subject.removeprefix("queue "))
        else:
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
    assert (document["clean"], {each["remark"] for each in document["findings"]}) == (True, {True})


#: what there is of a table, whoever asks
CATALOG = {
    "postgresql": (
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid)"
        " FROM pg_attribute AS a LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum"
        " WHERE a.attrelid = '{table}'::regclass AND a.attnum > 0 ORDER BY a.attnum",
        "SELECT pg_get_indexdef(i.indexrelid) FROM pg_index AS i WHERE i.indrelid = '{table}'::regclass ORDER BY 1",
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = '{table}'::regclass ORDER BY 1",
        "SELECT tgname FROM pg_trigger WHERE tgrelid = '{table}'::regclass",
        "SELECT reloptions, relpersistence::text FROM pg_class WHERE oid = '{table}'::regclass",
    ),
    "sqlserver": (
        "SELECT name, TYPE_NAME(user_type_id), is_nullable, default_object_id, is_computed FROM sys.columns"
        " WHERE object_id = OBJECT_ID('{table}') ORDER BY column_id",
        "SELECT name, type_desc FROM sys.indexes WHERE object_id = OBJECT_ID('{table}') ORDER BY name",
        "SELECT name FROM sys.objects WHERE parent_object_id = OBJECT_ID('{table}') ORDER BY name",
    ),
}


def catalog(sql, tables):
    queries = CATALOG[sql.database.engine]
    return {table: [sql.run(query.replace("{table}", table)) for query in queries] for table in tables}


def test_apply_changes_no_table_that_nservicebus_made_however_the_queue_is_declared(shop, database, sql):
    variants = ["as installed", "without delayed table"]
    if not shop.babelfish:  # it takes seconds for each queue
        variants = list(INSTALLERS[shop.engine])
    queues, tables = [], []
    for number, variant in enumerate(variants):
        for kind in ("own", "adopted", "external"):
            name = f"Net.{number}.{kind}"
            made = INSTALLERS[shop.engine][variant]
            for statement in made.statements(database.dialect, DEFAULT_SCHEMA[shop.engine], name):
                sql.run(statement)
            queues.append(QueueSettings(name, kind, delayed=bool(made.delayed)))
            tables += [sql.table(name), *([sql.table(f"{name}.Delayed")] if made.delayed else [])]
    before = catalog(sql, tables)

    apply(database, shop.plan(*queues))

    assert catalog(sql, tables) == before
    assert apply(database, shop.plan(*queues)).applied == ()


def test_a_column_that_is_declared_is_added_to_a_table_that_nservicebus_made(shop, database, installed):
    apply(database, shop.plan(QueueSettings("error", body_string=True)))

    assert "bodystring" in columns_of(installed, "error")
