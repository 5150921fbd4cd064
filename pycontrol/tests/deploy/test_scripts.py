"""Scripts: found, ordered, hashed, split into batches and rendered."""

import re
import shutil

import pytest

from rowpost.database.contract import load_contract
from rowpost.database.sql_folder import dialect_folder, sql_folder
from rowpost.deploy.contract_sql import contract_fragments, public_revokes, role_grants
from rowpost.deploy.plan import plan
from rowpost.deploy.scripts import Script, hash_text, load_scripts, read_script
from rowpost.deploy.sql_text import SqlTextError, code_line, code_only, expand, render, split_batches
from rowpost.errors import DeployError
from rowpost.settings.environment import QueueSettings, Settings
from rowpost.wire.address import IDENTIFIER_LIMIT, Address, queue_key

ENGINES = ("postgresql", "sqlserver")
NASTY = {
    "sqlserver": {
        "queue_table": "[dbo].[it's ]]odd]",
        "delayed_table": "[dbo].[it's ]]odd.Delayed]",
        "leased_table": "[dbo].[it's ]]odd.Leased]",
        "queue_key": "it's ]odd",
        "queue_name": "it's ]odd",
        "schema_name": "dbo",
        "table_name": "it's ]odd",
    },
    "postgresql": {
        "queue_table": '"public"."it\'s ""odd"',
        "delayed_table": '"public"."it\'s ""odd.Delayed"',
        "leased_table": '"public"."it\'s ""odd.Leased"',
        "queue_key": "it's \"odd",
        "queue_name": "it's \"odd",
        "schema_name": "public",
        "table_name": "it's \"odd",
    },
}


@pytest.fixture
def folder(tmp_path):
    """A copy of the sql folder, to change."""
    return shutil.copytree(sql_folder(), tmp_path / "sql")


def batches(text, engine):
    return [batch.text for batch in split_batches(text, engine)]


@pytest.mark.parametrize("engine", ENGINES)
def test_tables_run_first_in_number_order_then_deploy_s_procedures_then_helpers(engine):
    names = [script.name for script in load_scripts(engine).database]

    kinds = ["tables" if name.startswith("tables/") else name.split("/")[1] for name in names]
    assert names[0] == "tables/001_schema.sql"
    assert kinds == sorted(kinds, key=lambda kind: {"tables": 0, "deploy": 1}.get(kind, 2))
    assert names.index("procedures/registry/_resolve_queue.sql") < names.index(
        "procedures/recoverability/record_failure.sql"
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_each_script_of_tables_since_the_first_release_has_one_that_undoes_it(engine):
    later = [
        script.name for script in load_scripts(engine).database if script.kind == "once" and script.name > "tables/024"
    ]

    for name in later:
        assert read_script(engine, name.replace("tables/", "tables/undo/")).text
    assert not list(dialect_folder(engine).glob("tables/undo/00*"))  # the first release has nothing to go back to


def test_tables_run_by_number_and_not_by_alphabet(folder):
    for name in ("0910_ten.sql", "909_nine.sql"):
        (folder / "tables" / name).write_text("SELECT 1;\nGO\n")

    names = [script.name for script in load_scripts("sqlserver", folder).database if script.kind == "once"]

    assert names[-2:] == ["tables/909_nine.sql", "tables/0910_ten.sql"]
    assert load_scripts("sqlserver", folder).schema_version == 910


def test_two_one_time_scripts_of_one_number_are_refused(folder):
    (folder / "tables" / "001_again.sql").write_text("SELECT 1;")

    with pytest.raises(DeployError, match=r"001_schema\.sql and tables/001_again\.sql|001_again.*001_schema"):
        load_scripts("sqlserver", folder)


def test_a_file_that_cannot_be_read_is_named(folder):
    with pytest.raises(DeployError, match=r"nothing\.sql"):
        read_script("sqlserver", "nothing.sql", folder)


@pytest.mark.parametrize("engine", ENGINES)
def test_both_dialects_bring_the_same_files(engine):
    scripts, twin = (load_scripts(each) for each in ENGINES)

    assert [script.name for script in scripts.database] == [script.name for script in twin.database]
    assert {script.stem for script in scripts.queue.procedures} == {script.stem for script in twin.queue.procedures}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("schema", [None, "other"])
@pytest.mark.parametrize("character", ["n", "é", "🚀"])
def test_every_template_s_name_fits_the_identifier_limit_for_names_of_every_length(engine, schema, character):
    scripts = load_scripts(engine)
    stems = {script.stem for script in (*scripts.queue.procedures, *scripts.saga.procedures)}
    size = {
        "postgresql": lambda text: len(text.encode()),
        "sqlserver": lambda text: len(text.encode("utf-16-le")) // 2,
    }[engine]
    names = [
        character * length
        for length in range(1, IDENTIFIER_LIMIT[engine] + 1)
        if size(character * length) <= IDENTIFIER_LIMIT[engine]
    ]

    keys = [queue_key(Address(name, schema), engine) for name in names]
    lengths = {size(f"{stem}:{key}") for stem in stems for key in keys}

    assert max(lengths) <= IDENTIFIER_LIMIT[engine]
    assert len(set(keys)) == len(names)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_procedure_of_the_contract_has_its_file(engine):
    scripts = load_scripts(engine)

    files = {script.name for script in (*scripts.database, *scripts.queue.procedures, *scripts.saga.procedures)}

    assert {f"procedures/{each.folder}/{each.name}.sql" for each in load_contract().procedures} <= files


@pytest.mark.parametrize("engine", ENGINES)
def test_every_file_of_the_product_can_be_rendered_and_split(engine):
    scripts = load_scripts(engine)
    of_queues = (*scripts.queue.tables, *scripts.queue.procedures, *scripts.queue.grants, *scripts.queue.removal)
    fragments = contract_fragments(scripts.contract, engine) | {
        "procedure_grants": role_grants(engine, load_contract().templates()),
        "public_revokes": public_revokes(load_contract().templates()),
    }

    expanded = [Script(script.name, expand(script.text, fragments)) for script in of_queues]
    rendered = [render(script.text, NASTY[engine], engine) for script in expanded]

    assert not any("{queue_" in text for text in rendered)
    assert all(batches(text, engine) for text in [*rendered, *(script.text for script in scripts.database)])


def test_the_hash_does_not_see_line_ends_or_a_byte_order_mark(folder):
    name = "tables/001_schema.sql"
    before = read_script("sqlserver", name, folder)
    path = folder / name
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))

    after = read_script("sqlserver", name, folder)

    assert hash_text(after.text) == hash_text(before.text)


@pytest.mark.parametrize(
    ("name", "text", "kind", "table"),
    [
        ("tables/004_queue.sql", "CREATE TABLE IF NOT EXISTS rowpost.queue (", "once", "queue"),
        ("tables/012_more.sql", "-- x\nALTER TABLE rowpost.failure ADD", "once", "failure"),
        ("tables/001_schema.sql", "CREATE SCHEMA rowpost;", "once", None),
        ("tables/queue/create.sql", "CREATE TABLE rowpost.x (", "anytime", None),
        ("procedures/deploy/get_version.sql", "", "anytime", None),
        ("grants.sql", "", "everytime", None),
        ("tables/queue/grants.sql", "", "everytime", None),
        ("tables/queue/roles.sql", "", "everytime", None),
        ("tables/schema/create.sql", "CREATE SCHEMA x;", "anytime", None),
    ],
)
def test_when_a_script_runs_follows_from_its_place(name, text, kind, table):
    script = Script(name, text)

    assert (script.kind, script.table) == (kind, table)


def test_t_sql_is_split_at_go_lines_only():
    text = (
        "SELECT 'a\nGO\nb';\n  go  -- end\n/* x\nGO\n/* GO */\nGO\n*/ SELECT 2, [a\nGO\n];\nGO\n\nGOTO_x:\n-- GO\nGO\n"
    )

    assert batches(text, "sqlserver") == [
        "SELECT 'a\nGO\nb';",
        "/* x\nGO\n/* GO */\nGO\n*/ SELECT 2, [a\nGO\n];",
        "\nGOTO_x:\n-- GO",
    ]


def test_a_go_with_a_count_is_refused():
    with pytest.raises(SqlTextError, match="line 2: GO with a count"):
        split_batches("SELECT 1;\nGO 5\n", "sqlserver")


def test_postgresql_is_split_at_semicolons_outside_of_anything():
    text = (
        "SELECT ';', E'\\';', \";\", $$;$$; -- ;\n/* ; /* ; */ ; */\nSELECT (1);;\n"
        "CREATE FUNCTION f() AS $rowpost$ BEGIN; '$$' END $rowpost$;\nSELECT a$1;SELECT 2"
    )

    assert batches(text, "postgresql") == [
        "SELECT ';', E'\\';', \";\", $$;$$;",
        "-- ;\n/* ; /* ; */ ; */\nSELECT (1);",
        "CREATE FUNCTION f() AS $rowpost$ BEGIN; '$$' END $rowpost$;",
        "SELECT a$1;",
        "SELECT 2",
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_batch_knows_its_place_in_the_file(engine):
    end = "GO\n" if engine == "sqlserver" else ""
    text = f"SELECT 1;\n{end}\n-- why\nSELECT 2;\n{end}"

    first, second = split_batches(text, engine)

    assert (first.number, first.line, second.number) == (1, 1, 2)
    assert text.split("\n")[code_line(second, engine) - 1] == "SELECT 2;"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("text", ["-- nothing\n", "\n \n", "/* a */", ";"])
def test_what_holds_no_code_is_no_batch(engine, text):
    assert batches(text, engine) == []


@pytest.mark.parametrize(
    ("engine", "text", "line"),
    [
        ("sqlserver", "\n'a", 2),
        ("sqlserver", "[a]]", 1),
        ("sqlserver", "/* /* */", 1),
        ("postgresql", 'a\n\n"b', 3),
        ("postgresql", "$x$ $$", 1),
    ],
)
def test_a_text_without_its_end_is_refused_with_its_line(engine, text, line):
    with pytest.raises(SqlTextError) as caught:
        split_batches(text, engine)

    assert caught.value.line == line


@pytest.mark.parametrize(
    ("engine", "template", "rendered"),
    [
        ("sqlserver", "FROM {queue_table}", "FROM [dbo].[it's ]]odd]"),
        ("sqlserver", "OBJECT_ID(N'{queue_table}')", "OBJECT_ID(N'[dbo].[it''s ]]odd]')"),
        ("sqlserver", "rowpost.[a:{queue_key}]", "rowpost.[a:it's ]]odd]"),
        ("sqlserver", "OBJECT_ID(N'rowpost.[a:{queue_key}]')", "OBJECT_ID(N'rowpost.[a:it''s ]]odd]')"),
        ("sqlserver", "N'{queue_name}'", "N'it''s ]odd'"),
        ("sqlserver", "-- {queue_name}", "-- it's ]odd"),
        ("postgresql", "FROM {queue_table}", 'FROM "public"."it\'s ""odd"'),
        ("postgresql", "'{queue_table}'::regclass", '\'"public"."it\'\'s ""odd"\'::regclass'),
        ("postgresql", "to_regproc('rowpost.\"a:{queue_key}\"')", "to_regproc('rowpost.\"a:it''s \"\"odd\"')"),
        ("postgresql", 'rowpost."a:{queue_key}"', 'rowpost."a:it\'s ""odd"'),
        ("postgresql", "$rowpost$ x = '{queue_key}' $rowpost$", "$rowpost$ x = 'it''s \"odd' $rowpost$"),
    ],
)
def test_a_name_is_escaped_for_the_quotes_it_stands_in(engine, template, rendered):
    assert render(template, NASTY[engine], engine) == rendered


@pytest.mark.parametrize("engine", ENGINES)
def test_a_rendered_name_never_ends_what_it_stands_in(engine):
    evil = "'; DROP TABLE x; --]]\"*/"
    names = {"queue_table": '"q"', "queue_key": evil, "queue_name": evil}
    quoted = '"{queue_key}"' if engine == "postgresql" else "[{queue_key}]"
    template = f"SELECT '{{queue_name}}', {quoted} /* {{queue_name}} */;"

    rendered = render(template, names, engine)

    assert len(split_batches(rendered, engine)) == 1
    assert rendered.endswith("*/;")


def test_a_name_in_bare_code_is_refused_with_its_line():
    with pytest.raises(SqlTextError, match=r"line 2: \{queue_key\} stands outside quotes"):
        render("SELECT\n{queue_key}", {"queue_key": "x"}, "sqlserver")


def test_an_unknown_placeholder_is_refused_with_file_and_line(folder):
    path = folder / "postgresql/procedures/queue/peek_queue.sql"
    text = path.read_text().rstrip()
    path.write_text(f"{text}\nSELECT '{{qeue_key}}';\n")
    line = text.count("\n") + 2

    with pytest.raises(
        DeployError, match=rf"procedures/queue/peek_queue\.sql: line {line}: unknown placeholder {{qeue_key}}"
    ):
        plan(Settings(url="postgresql://db01/shop", queues=(QueueSettings("Sales"),)), folder)


def test_braces_that_name_nothing_stay():
    text = """SELECT '{"a": 1}', '{}' -- {A b}"""

    assert render(text, {}, "postgresql") == text


@pytest.mark.parametrize("engine", ENGINES)
def test_every_key_and_check_of_a_table_of_rowpost_s_own_has_a_chosen_name(engine):
    own = [each for each in load_scripts(engine).database if each.table]

    lines = [line for each in own for line in code_only(each.text, engine).splitlines()]
    keys = [line for line in lines if re.search(r"\b(PRIMARY KEY|UNIQUE|CHECK|REFERENCES)\b(?!.*\bINDEX\b)", line)]

    assert len(keys) > len(own) / 2
    assert [line for line in keys if "CONSTRAINT" not in line] == []
