"""What users get wrong: one clear paragraph, an exit code to trust, no traceback, nothing lost."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from rowpost.database.connection import connect_url
from rowpost.version import __version__
from tests.support.program import Ended, Program, environment_file, program

__all__ = ["program"]

USAGE, SETTINGS, UNAVAILABLE, PERMISSION, NOT_FOUND, FAILED = 2, 3, 4, 5, 6, 7
ODD_NAMES = ['a]b[c it\'s "d"; e', "😀" + "é" * 29 + "x", "Robert'); DROP TABLE victim;--", "[red]x[/red]"]
TOO_LONG = ["x" * 64, "é" * 32, "x" * 129]


def assert_refused(ended: Ended, code: int) -> None:
    """One paragraph on stderr, nothing on stdout."""
    assert ended.code == code, ended.err
    assert ended.out == ""
    assert "Traceback" not in ended.err
    assert ended.err.strip()


@pytest.fixture
def sales(program: Program) -> Program:
    """The program, with the queue Sales empty."""
    assert program("queue", "purge", "Sales", "--yes").code == 0
    return program


def refused_environment(program: Program, tmp_path: Path, text: str) -> Ended:
    path = tmp_path / "wrong.yml"
    path.write_text(text, encoding="utf-8")
    return program.with_environment(path)("queue", "list")


# ---------------------------------------------------------------------------------------------- names
@pytest.mark.parametrize(
    "arguments", [("receive",), ("send",), ("queue", "peek"), ("queue", "purge", "-y"), ("queue", "drop", "-y")]
)
def test_an_unknown_queue_is_named_and_not_found(program: Program, arguments: tuple[str, ...]):
    ended = program(*arguments, "No[bold]such")

    assert_refused(ended, NOT_FOUND)
    assert "'No[bold]such'" in ended.err


def test_queues_with_odd_names_work_like_any_other_and_never_execute(program: Program):
    for name in ODD_NAMES:
        made = program("queue", "create", name)
        sent = program("send", name, "--body", name)
        received = program("receive", name, "--json")
        dropped = program("queue", "drop", name, "--yes")

        assert (made.code, sent.code, received.code, dropped.code) == (0, 0, 0, 0), made.err + sent.err + received.err
        assert received.json["body"] == name


def test_a_name_that_no_queue_can_have_is_refused_before_anything_is_made(program: Program):
    for name in [*TOO_LONG, "", "@x", "a@[b", "a\nb", " a", "a@[b]@[c]@[d]", "a@[b]@[other]"]:
        assert_refused(program("queue", "create", name), USAGE)


def test_bytes_that_are_no_text_are_refused_as_a_name(program: Program):
    assert_refused(program("queue", "create", b"\xff\xfe".decode("utf-8", "surrogateescape")), USAGE)


def test_two_queues_whose_names_differ_only_in_case_are_two_queues_on_postgresql(program: Program):
    program("queue", "create", "Case")
    program("queue", "create", "case")
    program("send", "Case", "--body", "upper")

    assert program("queue", "peek", "case").out == "0\n"
    assert program("queue", "drop", "case", "--yes").code == 0
    assert program("receive", "Case", "--json").json["body"] == "upper"


# ---------------------------------------------------------------------------------------------- messages
def test_a_time_to_be_received_that_cannot_be_is_refused(sales: Program):
    for span in ("0s", "-5m", "40000d", "99999999999d", "60", "soon"):
        assert_refused(sales("send", "Sales", "--time-to-be-received", span, "--body", "x"), USAGE)

    assert sales("queue", "peek", "Sales").out == "0\n"


def test_headers_that_are_no_object_of_texts_are_refused(sales: Program, tmp_path: Path):
    for text in (
        "no JSON",
        "[]",
        '"text"',
        '{"a": 1}',
        '{"a": {"b": "c"}}',
        '{"a": "\\u0000"}',
        '{"a": "\\ud800"}',
        "{",
    ):
        (tmp_path / "headers.json").write_text(text)
        assert_refused(sales("send", "Sales", "--headers", tmp_path / "headers.json", "--body", "x"), USAGE)

    assert sales("queue", "peek", "Sales").out == "0\n"


@pytest.mark.parametrize("header", ["no value", "=value", "twice=1"])
def test_a_header_that_is_no_pair_or_given_twice_is_refused(sales: Program, header: str):
    assert_refused(sales("send", "Sales", "-H", header, "-H", "twice=2", "--body", "x"), USAGE)


def test_odd_headers_arrive_as_they_were(sales: Program, tmp_path: Path):
    text = (
        '{"null": null, "empty": "", "slash": "a\\/b", "astral": "\\ud83d\\ude00", "long": "' + "x" * 1_000_000 + '"}'
    )
    (tmp_path / "headers.json").write_text(text)

    sales("send", "Sales", "--headers", tmp_path / "headers.json", "--raw", "--body", "x")
    headers = sales("receive", "Sales", "--json").json["headers"]

    assert headers == {"null": None, "empty": "", "slash": "a/b", "astral": "😀", "long": "x" * 1_000_000}


def test_a_body_of_256_mib_arrives_byte_by_byte(sales: Program, tmp_path: Path):
    body = tmp_path / "body"
    piece = bytes(range(256)) * 4096
    with body.open("wb") as file:
        for _ in range(256):
            file.write(piece)

    sent = sales("send", "Sales", body, "--raw")
    received = sales("receive", "Sales", "--output", tmp_path, "--json")

    assert (sent.code, received.code) == (0, 0), sent.err + received.err
    assert digest(Path(received.json["body_file"])) == digest(body)


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@pytest.mark.parametrize(
    "arguments",
    [
        ("send", "Sales", "no-such-file"),
        ("send", "Sales", "."),
        ("send", "Sales", "--headers", "no-such-file", "--body", "x"),
        ("send", "Sales", "file", "--body", "x"),
        ("send", "Sales", "--lines", "--body", "x"),
        ("receive", "Sales", "--count", "0"),
        ("receive", "Sales", "--count", "-1"),
        ("receive", "Sales", "--count", "many"),
        ("queue", "peek", "Sales", "--count", "0"),
        ("queue", "peek", "Sales", "--count", "10001"),
        ("queue", "browse", "Sales", "--count", "0"),
        ("queue", "browse", "Sales", "--body-bytes", "-1"),
        ("queue", "create", "Theirs", "--external", "--heap"),
        ("queue", "grant",),
        ("demo", "--orders", "0"),
        ("no-such-command",),
        ("queue", "list", "--no-such-option"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_a_usage_error(program: Program, arguments: tuple[str, ...]):
    assert_refused(program(*arguments), USAGE)


def test_a_reader_who_leaves_early_keeps_the_message_in_the_queue(sales: Program):
    sales("send", "Sales", "--raw", stdin=b"x" * 1_000_000)

    with sales.started("receive", "Sales") as receiving:
        receiving.process.stdout.close()
        code = receiving.process.wait(timeout=60)
        complaint = receiving.process.stderr.read().decode()

    assert code == FAILED
    assert "Traceback" not in complaint
    assert sales("queue", "peek", "Sales").out == "1\n"


def test_a_folder_that_cannot_be_written_keeps_the_message_in_the_queue(sales: Program, tmp_path: Path):
    sales("send", "Sales", "--body", "x")
    (tmp_path / "file").write_text("")

    assert_refused(sales("receive", "Sales", "--output", tmp_path / "file" / "below"), FAILED)
    assert sales("queue", "peek", "Sales").out == "1\n"


# ---------------------------------------------------------------------------------------------- settings
@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("engine: embedded\nqueue: {}\n", "queue"),
        ("engine: embedded\nqueues: {Sales: {worker: {handler: 'a:b', limt: 3}}}\n", "limt"),
        ("engine: embedded\nqueues: {Sales: {worker: {handler: 'a:b', limit: 0}}}\n", "limit"),
        ("engine: embedded\nqueues: {Sales: {worker: {handler: 'a:b', limit: four}}}\n", "limit"),
        ("engine: embedded\nqueues: {Sales: {worker: {handler: nonsense}}}\n", "handler"),
        ("engine: oracle\n", "oracle"),
        ("engine: postgresql\n", "url"),
        ("engine: postgresql\nurl: postgresql://shop:${NO_SUCH_SECRET}@db/shop\n", "NO_SUCH_SECRET"),
        ("engine: [", "line 1"),
        ("- a list\n", "mapping"),
    ],
)
def test_an_environment_file_that_cannot_be_used_is_named_with_the_key(
    program: Program, tmp_path: Path, text: str, named: str
):
    ended = refused_environment(program, tmp_path, text)

    assert_refused(ended, SETTINGS)
    assert named in ended.err
    assert "wrong.yml" in ended.err


def test_an_unknown_environment_is_a_settings_error(program: Program):
    assert_refused(program("--env", "nowhere", "queue", "list"), SETTINGS)


def test_run_without_any_worker_says_how_to_give_a_queue_one(program: Program):
    ended = program("run")

    assert_refused(ended, SETTINGS)
    assert "worker:" in ended.err


def test_run_with_a_handler_that_is_not_there_names_it(program: Program, tmp_path: Path):
    queues = 'queues: {Sales: {worker: {handler: "no_such_module:handle"}}, error: {}}\n'

    ended = program.with_environment(environment_file(tmp_path, rest=queues))("run")

    assert ended.code == NOT_FOUND
    assert "no_such_module" in ended.err
    assert "Traceback" not in ended.err


def test_run_with_a_queue_that_was_not_deployed_names_it(program: Program, tmp_path: Path):
    queues = 'queues: {Undeployed: {worker: {handler: "a:b"}}, error: {}}\n'

    ended = program.with_environment(environment_file(tmp_path, rest=queues))("run")

    assert_refused(ended, NOT_FOUND)
    assert "rowpost apply" in ended.err


# ---------------------------------------------------------------------------------------------- the database
COMMANDS = [("queue", "list"), ("apply",), ("plan",)]


def at(program: Program, tmp_path: Path, url: str) -> Program:
    """The program with another url."""
    elsewhere = program.with_environment(environment_file(tmp_path))
    elsewhere.variables["SHOP_URL"] = url
    return elsewhere


@pytest.mark.parametrize("command", COMMANDS)
def test_a_database_that_is_down_is_unavailable_and_no_secret_is_shown(
    program: Program, tmp_path: Path, command: tuple
):
    ended = at(program, tmp_path, "postgresql://shop:hunter2@127.0.0.1:1/shop")(*command)

    assert_refused(ended, UNAVAILABLE)
    assert "hunter2" not in ended.err


def test_no_part_of_a_password_is_shown_if_the_url_is_badly_written(program: Program, tmp_path: Path):
    for engine, url in (
        ("postgresql", "postgresql://app:hun#ter2@127.0.0.1:1/shop"), ("postgresql", "postgresql://app:hun%ter2@127.0.0.1:1/shop"),
        ("postgresql", "postgresql://app:hun/ter2@127.0.0.1:1/shop"), ("sqlserver", "Server=127.0.0.1,1;PWD={hun;Database=ter2}"),
    ):  # fmt: skip
        badly_written = program.with_environment(environment_file(tmp_path, engine=engine))
        badly_written.variables["SHOP_URL"] = url
        # the driver of SQL Server tries for ten seconds: once is enough
        for command in (("plan",), ("apply",)) if engine == "postgresql" else (("plan",),):
            ended = badly_written(*command)
            assert ended.code != 0
            assert not re.search("ter2|hun", ended.out + ended.err), (url, command)


def test_a_login_that_is_refused_is_unavailable(program: Program, tmp_path: Path):
    no_such_role = re.sub("//[^@/]*@", "//nobody:hunter2@", program.variables["SHOP_URL"])
    no_such_database = re.sub(r"rowpost_test_\w+", "no_such_database", program.variables["SHOP_URL"])

    role = at(program, tmp_path, no_such_role)("queue", "list")
    database = at(program, tmp_path, no_such_database)("queue", "list")

    assert_refused(role, UNAVAILABLE)
    assert_refused(database, UNAVAILABLE)
    assert "hunter2" not in role.err


@pytest.mark.parametrize(
    "command", [("queue", "list"), ("send", "Sales", "--body", "x"), ("receive", "Sales"), ("queue", "create", "x")]
)
def test_a_database_without_the_schema_says_to_apply(program: Program, tmp_path: Path, new_database, command: tuple):
    ended = at(program, tmp_path, new_database("embedded"))(*command)

    assert_refused(ended, NOT_FOUND)
    assert "rowpost apply" in ended.err


def test_a_schema_of_a_newer_rowpost_is_left_alone(program: Program, tmp_path: Path, new_database):
    newer = at(program, tmp_path, new_database("embedded"))
    assert newer("apply").code == 0
    with connect_url("postgresql", newer.variables["SHOP_URL"]) as database:
        database.call("record_version", schema_version=999, tool_version="9.9.9")

    sent = newer("send", "Sales", "--body", "x")
    applied = newer("apply")
    verified = newer("verify", "--json")

    assert_refused(sent, FAILED)
    assert_refused(applied, FAILED)
    assert "9.9.9" in applied.err
    assert [finding["kind"] for finding in verified.json["findings"]] == ["schema_newer"]


def test_a_program_works_in_a_database_of_the_next_release_and_deploys_nothing_there(
    program: Program, tmp_path: Path, new_database
):
    newer = at(program, tmp_path, new_database("embedded"))
    major, minor, _ = __version__.split(".")
    assert newer("apply").code == 0
    with connect_url("postgresql", newer.variables["SHOP_URL"]) as database:
        database.call("record_version", schema_version=999, tool_version=f"{major}.{int(minor) + 1}.0")

    sent = newer("send", "Sales", "--body", "x")
    applied = newer("apply")

    assert sent.code == 0, sent.err
    assert_refused(applied, FAILED)


def test_a_reader_without_bodies_is_shown_the_rest_and_a_sentence_in_their_place(program: Program, tmp_path: Path):
    url = program.variables["SHOP_URL"]
    with connect_url("postgresql", url) as database:
        database.driver_connection.execute("DROP ROLE IF EXISTS cli_test_reader")
        database.driver_connection.execute("CREATE ROLE cli_test_reader LOGIN; GRANT rowpost_reader TO cli_test_reader")
    assert program("send", "Sales", "--body", "secret").code == 0
    reader = at(program, tmp_path, re.sub("//[^@/]*@", "//cli_test_reader@", url))

    shown = [
        reader(*command)
        for command in (
            ("queue", "browse", "Sales"), ("queue", "browse", "Sales", "--full"), ("--json", "queue", "browse", "Sales"),
        )
    ]  # fmt: skip
    archived = reader("archive", "Sales", str(tmp_path / "archive"))

    with connect_url("postgresql", url) as database:
        database.driver_connection.execute("DROP ROLE cli_test_reader")
    assert program("queue", "purge", "Sales", "--yes").code == 0
    assert [ended.code for ended in shown] == [0, 0, 0], shown
    assert all("rowpost_body_reader" in ended.out + ended.err for ended in shown)
    assert not any("secret" in ended.out for ended in shown)
    assert json.loads(shown[2].out.splitlines()[-1])["body_bytes"] == 6
    assert_refused(archived, PERMISSION)
    assert "rowpost_body_reader" in archived.err


def test_a_login_without_rights_is_told_so_and_granted_ones_work(program: Program, tmp_path: Path):
    url = program.variables["SHOP_URL"]
    with connect_url("postgresql", url) as database:
        database.driver_connection.execute("DROP ROLE IF EXISTS cli_test_shop")
        database.driver_connection.execute("CREATE ROLE cli_test_shop LOGIN")
    shop = at(program, tmp_path, re.sub("//[^@/]*@", "//cli_test_shop@", url))

    refused = shop("send", "Sales", "--body", "x")
    granted = program("queue", "grant", "--login", "cli_test_shop", "--send-to", "Sales", "--apply")
    sent = shop("send", "Sales", "--body", "x")
    received = shop("receive", "Sales")
    listed = shop("errors", "list")

    with connect_url("postgresql", url) as database:
        database.driver_connection.execute("DROP OWNED BY cli_test_shop; DROP ROLE cli_test_shop")
    assert_refused(refused, PERMISSION)
    assert (granted.code, sent.code) == (0, 0), granted.err + sent.err
    assert_refused(received, PERMISSION)
    assert_refused(listed, PERMISSION)
    assert "queue grant" in received.err
    assert "rowpost_reader" in listed.err
    assert "queue grant" not in listed.err
