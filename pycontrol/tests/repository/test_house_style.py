"""The house style and the contract of the .sql files, in both dialects."""

import re
from collections import Counter

import pytest

from rowpost.database.contract import Parameter, Procedure, load_contract
from rowpost.database.sql_folder import sql_folder
from rowpost.deploy.scripts import load_scripts
from rowpost.errors import CATALOGUE
from tests.support import babelfish
from tests.support.babelfish.fragments import FRAGMENTS
from tests.support.sql_headers import ROOTS, Header, files, headers, read_header, without_comments

ENGINES = ("sqlserver", "postgresql")
OVERLAY = babelfish.STAND_INS
TYPES = {
    "sqlserver": {
        "string": r"n?varchar\(\d+\)|char\(\d+\)|sysname",
        "text": r"nvarchar\(max\)",
        "strings": r"nvarchar\(max\)",
        "binary": r"varbinary\(max\)",
        "uuid": "uniqueidentifier",
        "integer": "int",
        "bigint": "bigint",
        "boolean": "bit",
        "timestamp": r"datetime2?(\(3\))?",
    },
    "postgresql": {
        "string": "text",
        "text": "text",
        "strings": r"text\[\]",
        "binary": "bytea",
        "uuid": "uuid",
        "integer": "integer",
        "bigint": "bigint",
        "boolean": "boolean",
        "timestamp": "timestamp",
    },
}
#: the parameters that stand for the type "messages", see sql/contract.yml
MESSAGES = {
    "sqlserver": [("messages", r"nvarchar\(max\)", False), ("bodies", r"varbinary\(max\)", True)],
    "postgresql": [
        ("headers", r"text\[\]", False),
        ("bodies", r"bytea\[\]", False),
        ("ids", r"uuid\[\]", True),
        ("times_to_be_received_ms", r"bigint\[\]", True),
    ],
}
ERROR = {"sqlserver": re.compile(r"\bTHROW 51(\d{3}),"), "postgresql": re.compile(r"ERRCODE = 'RP(\d{3})'")}
CALLED = {
    "sqlserver": re.compile(r"EXEC rowpost\.\[?(\w+)"),
    "postgresql": re.compile(r'\browpost\."?(\w+)(?::\w+")?\('),
}
#: a call of another procedure of the same queue
SIBLING = re.compile(r"(\w+):\{queue_key\}")
DISPATCHED = {
    "sqlserver": re.compile(r"CONCAT\(N'(\w+):', @queue_key\)"),
    "postgresql": re.compile(r"'(\w+):' \|\| v_queue_key"),
}
BANNED = {
    "sqlserver": r"MERGE|NOLOCK|GOTO|CURSOR|RAISERROR|READUNCOMMITTED|SELECT \*|GETDATE|SYSDATETIME"
    r"|BEGIN TRAN\w*|COMMIT|ROLLBACK|SAVE TRAN\w*",
    "postgresql": r"WHEN OTHERS|COMMIT|ROLLBACK|SAVEPOINT|LOCK TABLE|GOTO",
}
HISTORY = re.compile(r"\b(author|created|modified|changed by|(19|20)\d\d-\d\d)", re.IGNORECASE)


def public(engine: str) -> list[tuple[Procedure, Header]]:
    found = headers(engine)
    return [(procedure, found[f"{procedure.folder}/{procedure.name}"]) for procedure in load_contract().procedures]


def test_both_dialects_have_the_same_files():
    found = {
        engine: {
            path.relative_to(root).as_posix()
            for part in ("tables", "procedures")
            for path in root.glob(f"{part}/**/*.sql")
        }
        | {path.name for path in root.glob("*.sql")}
        for engine, root in ROOTS.items()
    }

    alone = {f"tables/{path}.sql": set(each.engines) for path, each in load_contract().tables.items() if each.engines}
    assert alone == {
        path: {engine for engine in found if path in found[engine]} for path in found["sqlserver"] ^ found["postgresql"]
    }
    assert {"begin.sql", "commit.sql", "grants.sql"} <= found["sqlserver"]


def test_the_first_line_of_a_header_is_the_same_in_both_dialects():
    first = [{key: header.comment.partition("\n")[0] for key, header in headers(engine).items()} for engine in ENGINES]

    assert first[0] == first[1]


def test_the_reading_order_names_every_procedure_once():
    named = re.findall(r"`(procedures/\w+/\w+\.sql)`", (sql_folder() / "README.md").read_text(encoding="utf-8"))

    assert sorted(named) == [path.relative_to(sql_folder()).as_posix() for path in files("sqlserver")]


def test_what_stands_in_on_babelfish_stands_in_for_something():
    strays = [
        path for path in OVERLAY.glob("procedures/*/*.sql") if not (sql_folder() / path.relative_to(OVERLAY)).is_file()
    ]

    assert strays == []


def test_every_substitution_for_babelfish_changes_a_script_of_sql():
    scripts = load_scripts("sqlserver")
    texts = [script.text for script in (*scripts.database, *scripts.queue.procedures, *scripts.saga.procedures)]

    idle = [lack for lack, change in babelfish.SUBSTITUTIONS.items() if all(change(text) == text for text in texts)]

    assert idle == []


@pytest.mark.parametrize("engine", ENGINES)
def test_a_file_holds_one_procedure_of_its_name_in_the_form_of_the_house_style(engine):
    names = {key: header.object_name for key, header in headers(engine).items()}

    assert {key: name for key, name in names.items() if key.partition("/")[2] != name} == {}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_contract_names_every_procedure_but_private_helpers(engine):
    written = {key for key in headers(engine) if not key.partition("/")[2].startswith("_")}

    assert written == {f"{procedure.folder}/{procedure.name}" for procedure in load_contract().procedures}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("scope", ["queue", "saga"])
def test_a_procedure_is_a_template_where_the_contract_says_so(engine, scope):
    templates = {procedure.name for procedure, header in public(engine) if f"{{{scope}_key}}" in header.name}

    assert templates == {procedure.name for procedure in load_contract().procedures if procedure.scope == scope}


def expected_parameters(procedure: Procedure, engine: str) -> list[tuple[str, str, bool]]:
    parameters = procedure.parameters_on(engine)
    entries: list[tuple[str, str, bool]] = []
    for number, parameter in enumerate(parameters):
        # PostgreSQL allows a default only where all that follow have one
        can_default = engine == "sqlserver" or all(later.optional for later in parameters[number:])
        entries += (
            MESSAGES[engine]
            if parameter.type == "messages"
            else [(parameter.name, TYPES[engine][parameter.type], parameter.optional and can_default)]
        )
    return entries


@pytest.mark.parametrize("engine", ENGINES)
def test_parameters_are_the_contracts_in_order_with_their_types_and_defaults(engine):
    wrong = []
    for procedure, header in public(engine):
        expected = expected_parameters(procedure, engine)
        written = [(column.name, column.type, column.optional) for column in header.parameters]
        same = [(e[0], e[2]) for e in expected] == [(w[0], w[2]) for w in written]
        if not same or not all(re.fullmatch(e[1], w[1]) for e, w in zip(expected, written, strict=True)):
            wrong.append((header.name, written))

    assert wrong == []


def result_names(columns: tuple[Parameter, ...]) -> list[str]:
    return [column.name for column in columns]


@pytest.mark.parametrize("engine", ENGINES)
def test_result_columns_are_the_contracts_in_order(engine):
    wrong = [
        (header.name, header.result)
        for procedure, header in public(engine)
        if header.result is not None and [column.name for column in header.result] != result_names(procedure.result)
    ]

    assert wrong == []


def test_result_columns_have_the_contracts_types_in_postgresql():
    wrong = [
        (header.name, column)
        for procedure, header in public("postgresql")
        for column, expected in zip(header.result or (), procedure.result, strict=True)
        if not re.fullmatch(TYPES["postgresql"][expected.type], column.type)
    ]

    assert wrong == []


def test_a_dispatcher_returns_what_the_queues_procedure_returns():
    contract = load_contract()
    fans_out = {"publish_message"}  # calls the subscribers' procedures, and then returns its own rows
    dispatchers = [
        p
        for p, header in public("sqlserver")
        if header.result is None and p.scope == "database" and p.name not in fans_out
    ]

    assert {procedure.name for procedure in dispatchers} == {"send_message", "receive_messages"}
    for procedure in dispatchers:
        there = contract.find(procedure.name, "queue")
        assert [(c.name, c.type) for c in procedure.result] == [(c.name, c.type) for c in there.result]


def errors_of(engine: str, key: str) -> set[int]:
    """Return the catalogue numbers that a procedure can raise itself, or through its helpers and the procedures it calls."""
    code = without_comments(headers(engine)[key].body, engine)
    found = {int(number) for number in ERROR[engine].findall(code)}
    if key in ("pubsub/publish_message", "monitoring/queue_metrics"):
        return found  # the procedures they call can refuse only arguments that they do not pass on
    called = set(CALLED[engine].findall(code))
    helpers = {f"{key.partition('/')[0]}/{name}" for name in called} & headers(engine).keys()
    folders = Counter(each.partition("/")[2] for each in headers(engine))
    helpers |= {each for each in headers(engine) if (name := each.partition("/")[2]) in called and folders[name] == 1}
    siblings = {f"queue/{name}" for name in SIBLING.findall(code)} & headers(engine).keys()
    for other in (helpers | siblings | {f"queue/{name}" for name in DISPATCHED[engine].findall(code)}) - {key}:
        found |= errors_of(engine, other)
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_a_procedure_raises_the_errors_that_the_contract_lists_and_no_others(engine):
    raised = {f"{p.folder}/{p.name}": errors_of(engine, f"{p.folder}/{p.name}") for p, _ in public(engine)}

    assert raised == {f"{p.folder}/{p.name}": set(p.errors) for p in load_contract().procedures}


def test_every_error_of_the_contract_has_a_class_of_its_name_and_number():
    assert {number: error.__name__ for number, error in CATALOGUE.items()} == {
        number: entry.name for number, entry in load_contract().errors.items()
    }


@pytest.mark.parametrize("engine", ENGINES)
def test_the_header_comment_says_purpose_atomicity_and_locking_and_no_history(engine):
    wrong = []
    for key, header in headers(engine).items():
        lines = header.comment.splitlines()
        words = [line.partition(":")[0] for line in lines]
        needed = ["Atomicity", "Locking"] if header.kind == "PROCEDURE" or "Atomicity" in words else []
        if (
            not lines[0].endswith((".", ","))
            or [w for w in words if w in needed] != needed
            or HISTORY.search(header.comment)
        ):
            wrong.append(key)

    assert wrong == []


@pytest.mark.parametrize("engine", ENGINES)
def test_no_procedure_uses_what_the_house_style_bans(engine):
    banned = re.compile(rf"\b(?:{BANNED[engine]})(?!\w)")
    found = {
        path.name: match.group()
        for path in [*files(engine), *(OVERLAY.glob("procedures/*/*.sql") if engine == "sqlserver" else [])]
        if (match := banned.search(without_comments(path.read_text(encoding="utf-8"), engine)))
    }

    assert found == {}


def test_a_tsql_procedure_starts_with_its_settings():
    wrong = [
        header.name
        for header in headers("sqlserver").values()
        if header.kind == "PROCEDURE" and not header.body.startswith("SET NOCOUNT, XACT_ABORT ON;\n")
    ]

    assert wrong == []


def test_a_procedure_that_locks_or_steps_over_rows_sets_its_isolation_level():
    wrong = [
        header.name
        for header in headers("sqlserver").values()
        if "READPAST" in header.body and "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;" not in header.body
    ]

    assert wrong == []


#: tables that a procedure which never waits reads without READPAST, because nobody can have locked what it seeks
SOUGHT = {("clean_outbox", "rowpost.outbox_operations")}


def test_a_tsql_procedure_that_says_it_never_waits_skips_the_locked_rows_of_each_table_that_it_reads():
    """Without READ_COMMITTED_SNAPSHOT a plain read waits for whoever has changed a row."""
    never = [header for header in headers("sqlserver").values() if "never waits" in header.comment]
    read = [
        (header.name, table, hints)
        for header in never
        for table, hints in re.findall(
            r"(?:FROM|JOIN)\s+(rowpost\.\w+|\{\w+\}) AS \w+(?: WITH \(([^)]*)\))?", header.body
        )
    ]

    waits = {(name, table) for name, table, hints in read if "READPAST" not in hints}

    assert len(never) > 3
    assert waits == SOUGHT
    assert all("FORCESEEK" in hints for name, table, hints in read if (name, table) in SOUGHT)
    # whoever deletes operations has locked their record, if it is old: clean_outbox skips it, and seeks no operation
    settle = headers("sqlserver")["outbox/settle_operations"].body
    assert settle.index("UPDATE o") < settle.index("DELETE p")


#: these run as their caller and qualify every name; with a setting the server could not inline them into the query
INLINED = {"stream/read_range"}


def test_postgresql_functions_pin_their_search_path_but_for_those_that_are_planned_with_the_query():
    unpinned = {
        key
        for key, header in headers("postgresql").items()
        if "SET search_path = pg_catalog, pg_temp" not in header.options.splitlines()
    }

    assert unpinned == INLINED
    assert [key for key in INLINED if "SECURITY DEFINER" in headers("postgresql")[key].options] == []


def test_security_definer_stands_nowhere_but_in_a_functions_options():
    trigger = (
        ROOTS["postgresql"] / "tables/queue/create_trigger.sql"
    )  # its function is made with the trigger, and pinned like the others
    elsewhere = [
        path.relative_to(sql_folder()).as_posix()
        for path in ROOTS["postgresql"].rglob("*.sql")
        if path not in [*files("postgresql"), trigger]
        and "SECURITY DEFINER" in without_comments(path.read_text(encoding="utf-8"), "postgresql").upper()
    ]

    assert elsewhere == []
    assert "\nSECURITY DEFINER\nSET search_path = pg_catalog, pg_temp\nAS " in trigger.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("path", "header"),
    [(path, path.relative_to(OVERLAY)) for path in sorted(OVERLAY.glob("procedures/*/*.sql"))],
    ids=str,
)
def test_a_babelfish_file_has_its_originals_header_and_names_the_limit(path, header):
    here, original = read_header(path, "sqlserver"), read_header(sql_folder() / header, "sqlserver")

    assert (here.name, here.parameters) == (original.name, original.parameters)
    assert None in (here.result, original.result) or here.result == original.result
    assert re.search(r"^Babelfish: ", here.comment, re.MULTILINE)


def test_each_change_for_babelfish_is_made_and_has_a_name_of_its_own():
    texts = "".join(path.read_text(encoding="utf-8") for path in sorted(sql_folder().rglob("*.sql")))

    assert len({lack for lack, *_ in FRAGMENTS}) == len(FRAGMENTS)
    assert [lack for lack, statement, _ in FRAGMENTS if statement not in texts] == []


def test_a_batch_that_makes_an_object_makes_no_other():
    batches = [
        (path.stem, batch)
        for path in sorted((sql_folder() / "tables").rglob("*.sql"))
        for batch in re.split(r"^GO$", path.read_text("utf-8"), flags=re.MULTILINE)
    ]

    assert [where for where, batch in batches if len(re.findall(r"^CREATE ", batch, re.MULTILINE)) > 1] == []
