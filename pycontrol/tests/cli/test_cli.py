"""Every command of the program, as a process, on every engine that can be reached."""

import json
import re
from pathlib import Path
from uuid import UUID

import pytest

from rowpost.database.connection import connect
from rowpost.settings.environment import load_settings
from rowpost.wire.message import parse_timestamp
from tests.support.program import Program, environment_file, rowpost

__all__ = ["rowpost"]


@pytest.fixture
def sales(rowpost: Program) -> Program:
    """The program, with the queue Sales empty."""
    assert rowpost("queue", "purge", "Sales", "--yes").code == 0
    return rowpost


def headers_of(message: dict) -> dict[str, str]:
    return {name.removeprefix("NServiceBus."): value for name, value in message["headers"].items()}


# ---------------------------------------------------------------------------------------------- send, receive
def test_a_message_sent_from_a_file_is_received_with_the_headers_that_an_endpoint_needs(sales: Program):
    (sales.folder / "order.json").write_text('{"OrderId": 42}')

    sent = sales("send", "Sales", "order.json", "--type", "Shop.PlaceOrder", "--header", "Shop.Region=EU", "--json")
    received = sales("receive", "Sales", "--json")

    message = received.json
    headers = headers_of(message)
    assert (sent.code, received.code) == (0, 0)
    assert message["body"] == '{"OrderId": 42}'
    assert message["id"] == sent.json["id"]
    assert headers["EnclosedMessageTypes"] == "Shop.PlaceOrder"
    assert headers["ContentType"] == "application/json"
    assert headers["MessageIntent"] == "Send"
    assert headers["OriginatingEndpoint"] == "rowpost"
    assert headers["Shop.Region"] == "EU"
    assert UUID(headers["MessageId"])
    assert headers["MessageId"] == headers["ConversationId"] == headers["CorrelationId"] == sent.json["message_id"]
    assert parse_timestamp(headers["TimeSent"])


def test_a_raw_message_has_no_headers_but_those_given(sales: Program):
    sales("send", "Sales", "--raw", "-H", "a=b=c", stdin=b"x")

    message = sales("receive", "Sales", "--json").json

    assert message["headers"] == {"a": "b=c"}


def test_every_line_of_a_file_is_a_message_with_lines(sales: Program):
    sent = sales("send", "Sales", "--lines", "--json", stdin="one\ntwo\n\nthree")

    bodies = [message["body"] for message in sales("receive", "Sales", "--count", "10", "--json").lines]

    assert sent.json == {"queue": "Sales", "sent": 3}
    assert bodies == ["one", "two", "three"]


def test_a_message_sent_with_a_delay_waits_in_the_delayed_table(sales: Program):
    sent = sales("send", "Sales", "--body", "{}", "--type", "Shop.PlaceOrder", "--delay", "1h", "--json")
    said = sales("send", "Sales", "--body", "{}", "--delay", "1h")
    refused = sales("send", "Sales", "--body", "{}", "--delay", "1h", "--time-to-be-received", "2h")
    delayed = sales("delayed", "list", "Sales", "--json").lines

    assert (sent.code, said.code, refused.code) == (0, 0, 2)
    assert "--delay cannot be combined with --time-to-be-received" in refused.err
    assert f"to be handled at {sent.json['deliver_at'][:13]}" in said.err + said.out
    assert sales("queue", "peek", "Sales").out.split()[0] == "0"
    assert len(delayed) == 2
    for each in delayed:
        sales("delayed", "cancel", "Sales", str(each["key"]), "--yes")


def test_an_event_is_published_to_its_subscribers(sales: Program):
    nobody = sales("publish", "Shop.OrderPlaced", "--body", "{}", "--json")
    assert sales("subscriptions", "add", "Sales", "Shop.OrderPlaced").code == 0

    published = sales("publish", "Shop.RushPlaced;Shop.OrderPlaced", "--body", '{"OrderId":1}', "-H", "a=b", "--json")
    received = sales("receive", "Sales", "--json").json
    sales("subscriptions", "remove", "Sales", "Shop.OrderPlaced")

    assert (nobody.json["subscribers"], published.json["subscribers"]) == (0, 1)
    headers = headers_of(received)
    assert (headers["MessageIntent"], headers["a"]) == ("Publish", "b")
    assert headers["EnclosedMessageTypes"] == "Shop.RushPlaced;Shop.OrderPlaced"
    assert headers["MessageId"] == published.json["message_id"]
    assert sales("publish", " ", "--body", "{}").code == 2


def test_receive_prints_text_readable_and_binary_as_size_and_hexadecimal(sales: Program):
    sales("send", "Sales", "--body", "grüße 😀", "--raw")
    sales("send", "Sales", "--raw", stdin=b"\x00\xff\x10")

    shown = sales("receive", "Sales", "-n", "2")

    assert "grüße 😀" in shown.out
    assert "(binary, 3 bytes)\n00 ff 10" in shown.out
    assert "Received 2" in shown.err


def test_receive_neutralises_what_would_steer_a_terminal(sales: Program):
    sales("send", "Sales", "--raw", "-H", "title=\x1b]0;owned\x07", "--body", "\x1b[31mred \u202eevil")

    shown = sales("receive", "Sales")

    assert "\x1b" not in shown.out
    assert "\\x1b[31mred \\u202eevil" in shown.out


def test_receive_gives_binary_bodies_as_base64_to_machines(sales: Program):
    sales("send", "Sales", "--raw", stdin=b"\x00\xff")

    message = sales("receive", "Sales", "--json").json

    assert (message["body_base64"], message["body_bytes"]) == ("AP8=", 2)


def test_a_message_received_into_files_is_sent_again_byte_by_byte(sales: Program, tmp_path: Path):
    sales("send", "Sales", "-H", "note=é", stdin=b"\x00\x01\r\n")
    first = sales("queue", "browse", "Sales", "--json").json

    files = sales("receive", "Sales", "--output", tmp_path, "--json").json
    sales("send", "Sales", files["body_file"], "--headers", files["headers_file"], "--raw")
    again = sales("receive", "Sales", "--json").json

    assert Path(files["body_file"]).read_bytes() == b"\x00\x01\r\n"
    assert (again["headers"], again["body_base64"] if "body_base64" in again else again["body"]) == (
        first["headers"],
        first["body_base64"] if "body_base64" in first else first["body"],
    )


def test_an_empty_queue_is_no_error_to_receive_from(sales: Program):
    received = sales("receive", "Sales")

    assert (received.code, received.out) == (0, "")
    assert "empty" in received.err


def test_a_message_with_a_time_to_be_received_expires_by_the_servers_clock(sales: Program):
    sales("send", "Sales", "--time-to-be-received", "5m", stdin=b"x")
    sales("send", "Sales", "--time-to-be-received", "60d", stdin=b"y")

    expires = [message["expires"] for message in sales("queue", "browse", "Sales", "--json").lines]

    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT.*\+00:00", each) for each in expires)


# ---------------------------------------------------------------------------------------------- queues
def test_a_queue_is_created_listed_checked_and_dropped(rowpost: Program):
    created = rowpost("queue", "create", "Returns", "--body-string", "--json")
    listed = rowpost("queue", "list", "--json")
    checked = rowpost("queue", "check", "Returns", "--json")
    dropped = rowpost("queue", "drop", "Returns", "--yes", "--json")
    gone = rowpost("queue", "list", "--json")

    assert created.json["kind"] == "own"
    entry = next(queue for queue in listed.json if queue["queue"] == "Returns")
    assert (entry["kind"], entry["body_string"]) == ("own", True)
    assert (checked.code, checked.json) == (0, {"clean": True, "findings": []})
    assert dropped.json == {"queue": "Returns", "dropped": True}
    assert "Returns" not in [queue["queue"] for queue in gone.json]


def test_the_list_of_queues_does_not_wait_for_a_table_that_is_locked(rowpost, monkeypatch):
    for name, value in rowpost.variables.items():
        monkeypatch.setenv(name, value)
    settings = load_settings(rowpost.environment)
    if settings.engine != "postgresql":
        pytest.skip("locks the table as PostgreSQL spells it")
    rowpost("queue", "create", "Locked")
    with connect(settings) as database, database.transaction():
        database.driver_connection.execute('LOCK TABLE public."Locked"')
        listed = rowpost("queue", "list", "--json")
    rowpost("queue", "drop", "Locked", "--yes")

    assert [queue["estimated"] for queue in listed.json if queue["queue"] == "Locked"] == [True]


def test_the_list_of_queues_shows_what_waits_and_never_what_is_gone(rowpost):
    """Estimates of the server lag behind: three messages that were sent and received must not stay in the list."""
    rowpost("queue", "create", "Counted")
    depths = []
    for command in (("send", "Counted", "--body", "{}", "--type", "Shop.X"), ("receive", "Counted")):
        for _ in range(3):
            assert rowpost(*command).code == 0
        depths += [
            (q["depth"], q["estimated"]) for q in rowpost("queue", "list", "--json").json if q["queue"] == "Counted"
        ]
    rowpost("queue", "drop", "Counted", "--yes")

    assert depths == [(3, False), (0, False)]


def test_a_forgotten_queues_table_keeps_its_messages_and_can_be_adopted(rowpost: Program):
    rowpost("queue", "create", "Legacy")
    rowpost("send", "Legacy", "--body", "kept")

    forgotten = rowpost("queue", "drop", "Legacy", "--keep-table", "--json")
    adopted = rowpost("queue", "adopt", "Legacy", "--json")
    message = rowpost("receive", "Legacy", "--json").json

    assert forgotten.json == {"queue": "Legacy", "dropped": False}
    assert (adopted.code, adopted.json["kind"]) == (0, "adopted")
    assert message["body"] == "kept"
    assert rowpost("queue", "drop", "Legacy", "--yes").code == 0


def test_an_external_queue_is_sent_to_and_never_received_from(rowpost: Program):
    rowpost("queue", "create", "Theirs")
    rowpost("queue", "drop", "Theirs", "--keep-table")

    created = rowpost("queue", "create", "Theirs", "--external")
    sent = rowpost("send", "Theirs", "--body", "x")
    received = rowpost("receive", "Theirs")

    assert (created.code, sent.code, received.code) == (0, 0, 6)
    assert rowpost("queue", "drop", "Theirs").code == 0


def test_peek_counts_and_tells_scripts_whether_something_waits(sales: Program):
    empty = sales("queue", "peek", "Sales", "--exit-code")
    sales("send", "Sales", "--lines", stdin="a\nb\nc")

    full = sales("queue", "peek", "Sales", "--exit-code", "--json")
    shown = sales("queue", "peek", "Sales")

    assert (empty.code, empty.out) == (0, "0\n")
    assert (full.code, full.json) == (1, {"queue": "Sales", "waiting": 3, "at_least": False})
    assert (shown.code, shown.out) == (0, "3\n")


def test_browse_shows_what_is_there_and_takes_nothing(sales: Program):
    sales("send", "Sales", "--type", "Shop.PlaceOrder, Shop", "--body", "first")
    sales("send", "Sales", "-H", "NServiceBus.ExceptionInfo.Message=no such order", "--body", "second")

    shown = sales("queue", "browse", "Sales")
    documents = sales("queue", "browse", "Sales", "--json", "--body-bytes", "2").lines
    later = sales("queue", "browse", "Sales", "--after", documents[0]["row_version"], "--json").lines
    full = sales("queue", "browse", "Sales", "--full")

    assert "Shop.PlaceOrder " in shown.out
    assert "failed: no such order" in shown.out
    assert [(each["body"], each["body_bytes"]) for each in documents] == [("fi", 5), ("se", 6)]
    assert [each["body"] for each in later] == ["second"]
    assert "NServiceBus.EnclosedMessageTypes: Shop.PlaceOrder, Shop" in full.out
    assert sales("queue", "peek", "Sales").out == "2\n"


def test_purge_removes_every_message_and_says_how_many(sales: Program):
    sales("send", "Sales", "--lines", stdin="x\n" * 4100)

    purged = sales("queue", "purge", "Sales", "--yes", "--json")

    assert purged.json == {"queue": "Sales", "purged": 4100, "ended": True}


def test_what_cannot_be_undone_is_not_done_unasked(sales: Program):
    sales("send", "Sales", "--body", "x")

    purged = sales("queue", "purge", "Sales")
    dropped = sales("queue", "drop", "Sales")

    assert (purged.code, dropped.code) == (2, 2)
    assert "--yes" in purged.err
    assert sales("queue", "peek", "Sales").out == "1\n"


def test_grant_prints_statements_and_connects_to_nothing(rowpost: Program):
    elsewhere = {"sqlserver": "Server=nowhere.invalid;Database=x", "postgresql": "postgresql://nowhere.invalid/x"}
    offline = rowpost.with_environment(rowpost.environment)
    offline.variables["SHOP_URL"] = elsewhere[rowpost.engine]

    printed = offline(
        "queue", "grant", "--login", "shop]\"'", "--receive-from", "Sales", "--send-to", "error", "--json"
    )

    assert printed.code == 0
    statements = printed.json["statements"]
    assert any("receive_messages:Sales" in each for each in statements)
    assert any("send_message:error" in each for each in statements)
    assert not any("receive_messages:error" in each for each in statements)


def test_a_grant_on_a_queue_that_does_not_exist_is_refused(rowpost: Program):
    refused = rowpost("queue", "grant", "--login", "shop", "--receive-from", "Nix")

    assert (refused.code, refused.out) == (6, "")
    assert "'Nix'" in refused.err


# ---------------------------------------------------------------------------------------------- deployment
def test_plan_prints_one_script_offline_and_the_difference_online(rowpost: Program, tmp_path: Path):
    script = rowpost("plan", "--sql")
    written = rowpost("plan", "--output", tmp_path / "plan.sql")
    difference = rowpost("plan", "--exit-code", "--json")
    more = environment_file(tmp_path, rowpost.engine, "queues: {Sales: {}, Complaints: {}}\n")
    pending = rowpost.with_environment(more)("plan", "--exit-code")

    assert script.out.startswith("-- rowpost ")
    assert "send_message:Sales" in script.out
    assert (written.code, (tmp_path / "plan.sql").read_text()) == (0, script.out)
    assert (difference.code, difference.json["changes"]) == (0, [])
    assert pending.code == 1
    assert "Complaints" in pending.out


def test_plan_as_files_needs_an_empty_folder_and_prints_what_it_wrote(rowpost: Program, tmp_path: Path):
    written = rowpost("plan", "--sql", "--by-queue", "-o", tmp_path / "files", "--json")
    again = rowpost("plan", "--sql", "--by-queue", "-o", tmp_path / "files")
    folder = rowpost("plan", "--sql", "-o", tmp_path / "files")
    nowhere = rowpost("plan", "--sql", "--by-queue")

    assert written.code == 0
    assert written.json == json.loads((tmp_path / "files" / "manifest.json").read_text())
    assert written.json["plan"] == rowpost("plan", "--sql", "--json").json["hash"]
    assert (again.code, "not empty" in again.err) == (7, True)
    assert (folder.code, "names a folder" in folder.err) == (2, True)
    assert (nowhere.code, "--output" in nowhere.err) == (2, True)


def test_the_way_back_is_printed_offline_and_is_an_option_of_the_script_alone(rowpost: Program, tmp_path: Path):
    rowpost("plan", "--release-archive", tmp_path / "old.zip")

    script = rowpost("plan", "--sql", "--to", tmp_path / "old.zip")
    written = rowpost("plan", "--to", tmp_path / "old.zip", "-o", tmp_path / "back.sql")
    refused = [
        rowpost("plan", *arguments)
        for arguments in (
            ("--to", tmp_path / "old.zip"),
            ("--sql", "--tables"),
            ("--sql", "--review", "--to", tmp_path / "old.zip"),
        )
    ]

    assert "-- The way back to rowpost " in script.out
    assert "send_message:Sales" in script.out
    assert (written.code, (tmp_path / "back.sql").read_text()) == (0, script.out)
    assert [each.code for each in refused] == [2, 2, 2]


def test_plan_to_be_read_is_shorter_than_the_script_and_has_its_hash(rowpost: Program, tmp_path: Path):
    script = rowpost("plan", "--sql", "--json").json
    read = rowpost("plan", "--sql", "--review", "--json").json
    written = rowpost("plan", "--review", "-o", tmp_path / "read.sql")
    sales = rowpost("plan", "--sql", "--review", "--queue", "Sales")
    refused = rowpost("plan", "--review")

    assert read["hash"] == script["hash"]
    assert len(read["review"]) < len(script["script"])
    assert (written.code, (tmp_path / "read.sql").read_text()) == (0, read["review"])
    assert "send_message:Sales" in sales.out
    assert "send_message:error" not in sales.out
    assert (refused.code, "plan --sql" in refused.err) == (2, True)


def test_apply_says_what_it_did_and_a_second_one_does_nothing(rowpost: Program):
    again = rowpost("apply", "--json")

    assert again.code == 0
    assert again.json["applied"] == []
    assert again.json["unchanged"] > 0


def test_verify_is_clean_after_apply_and_names_what_was_not_applied(rowpost: Program, tmp_path: Path):
    more = environment_file(tmp_path, rowpost.engine, "queues: {Missing: {}}\n")

    clean = rowpost("verify", "--json")
    finding = rowpost.with_environment(more)("verify", "--json")

    assert (clean.code, clean.json) == (0, {"clean": True, "findings": []})
    assert (finding.code, finding.json["clean"]) == (1, False)
    assert "queue Missing" in [each["subject"] for each in finding.json["findings"]]


def test_production_is_not_changed_unasked(rowpost: Program, tmp_path: Path):
    production = rowpost.with_environment(environment_file(tmp_path, rowpost.engine, name="production"))

    refused = production("apply")
    agreed = production("apply", "--yes")

    assert (refused.code, agreed.code) == (2, 0)
    assert "--yes" in refused.err


def test_version_names_program_schema_and_server(rowpost: Program):
    version = rowpost("version", "--json").json
    short = rowpost("--version")

    assert version["deployed_schema"] == version["schema"]
    assert version["deployed_by"] == version["rowpost"]
    assert ("rights on procedures alone" in version["supports"]) is not (
        "rights on procedures alone" in version["lacks"]
    )
    assert ("rights on procedures alone" in version["lacks"]) == version["server"].startswith("Babelfish")
    assert short.out == f"rowpost {version['rowpost']}\n"


# ---------------------------------------------------------------------------------------------- run
HANDLER = """
import json

print("the module is imported")

def place_order(message, connection):
    print("a handler prints")
    if json.loads(message.body)["OrderId"] == 13:
        raise ValueError("thirteen")
"""
WORKED = """
queues:
  Sales: {worker: {handler: "shop:place_order", limit: 2, attempts: 2, peek_delay: 0.1}}
  Billing: {}
  error: {}
  audit: {}
"""


@pytest.fixture
def shop(sales: Program, tmp_path: Path) -> Program:
    """The program with a handler on Sales, in the folder where it starts."""
    (sales.folder / "shop.py").write_text(HANDLER)
    assert sales("queue", "purge", "error", "--yes").code == 0
    return sales.with_environment(environment_file(tmp_path, sales.engine, WORKED))


def test_apply_and_run_name_a_queue_that_the_workers_need_and_nobody_declares(shop: Program, tmp_path: Path):
    worked = WORKED.replace("error: {}", "Other: {}") + "supervisor: {error_queue: Broken}\n"
    lacking = shop.with_environment(environment_file(tmp_path, shop.engine, worked, name="lacking"))

    applied = lacking("apply")
    ran = lacking("run", "--until-idle")

    assert applied.code == 0
    assert "Add `Broken: {}`" in applied.err
    assert ran.code == 6
    assert "Add `Broken: {}`" in ran.err


def test_run_works_a_queue_off_with_log_lines_and_moves_failures_to_the_error_queue(shop: Program):
    shop("send", "Sales", "--lines", stdin="".join(f'{{"OrderId": {number}}}\n' for number in range(1, 21)))

    ran = shop("run", "--until-idle")

    assert ran.code == 0
    assert "Sales: 19 handled" in ran.out
    assert "moved to the error queue after 2 attempts: ValueError: thirteen" in ran.out
    failed = shop("queue", "browse", "error", "--json").json
    assert failed["headers"]["NServiceBus.ExceptionInfo.Message"] == "thirteen"


def test_run_tells_machines_in_json_lines(shop: Program):
    shop("send", "Sales", "--body", '{"OrderId": 1}')

    ran = shop("run", "--until-idle", "--queue", "Sales", "--json")

    assert ran.code == 0
    assert {"WorkerStarted", "WorkerStopped", "Totals"} <= {line["event"] for line in ran.lines}
    assert ran.lines[-1]["handled"] == 1
    assert "a handler prints" in ran.err


def test_what_a_handler_logs_is_among_the_lines_under_the_id_that_the_error_queue_shows(shop: Program, tmp_path: Path):
    (shop.folder / "noisy.py").write_text(
        "import logging\n"
        "def order(message, connection):\n"
        "    print('{ printed')\n"
        "    logging.getLogger('noisy').warning('cannot do\\nit')\n"
        "    logging.getLogger('noisy').info('not asked for')\n"
        "    raise ValueError('thirteen')\n"
    )
    worked = WORKED.replace("shop:place_order", "noisy:order")
    as_text = shop.with_environment(environment_file(tmp_path, shop.engine, worked, name="as_text"))
    as_json = shop.with_environment(
        environment_file(tmp_path, shop.engine, f"{worked}log: {{level: warning, format: json}}\n", name="as_json")
    )

    shop("send", "Sales", "--body", "1")
    lines = as_json("run", "--until-idle", "--queue", "Sales").lines
    failed = shop("errors", "list", "--json").json
    shop("queue", "purge", "error", "--yes")
    shop("send", "Sales", "--body", "1")
    text = as_text("run", "--until-idle", "--queue", "Sales").out

    told = [line for line in lines if line["event"] == "Logged"]
    assert [(line["level"], line["logger"], line["text"], line["queue"]) for line in told] == [
        ("warning", "noisy", "cannot do\nit", "Sales")
    ] * 2
    of_message = [line for line in lines if line["event"] in ("Logged", "Failed", "MovedToError")]
    assert {line["message_id"] for line in of_message} == {failed["message_id"]}
    assert "WorkerStarted" not in {line["event"] for line in lines}  # less severe than a warning
    assert lines[-1]["event"] == "Totals"
    failed = shop("errors", "list", "--json").json
    assert re.search(rf"Sales: worker \d+: WARNING noisy: cannot do it \(message {failed['message_id']}\)\n", text)
    assert re.search(r"INFO noisy: not asked for", text)
    assert f"message {failed['message_id']} moved to the error queue after 2 attempts: ValueError: thirteen" in text


def test_what_a_module_prints_when_it_is_imported_is_not_among_the_json(shop: Program, tmp_path: Path):
    (shop.folder / "typed.py").write_text(
        "from rowpost import Endpoint\nprint('the module is imported')\nbilling = Endpoint('Billing')\n"
    )
    typed = WORKED.replace("Billing: {}", "Billing: {worker: {handler: 'typed:billing'}}")
    program = shop.with_environment(environment_file(tmp_path, shop.engine, typed, name="typed"))

    planned = program("plan", "--json")

    assert planned.json["environment"] == "typed"
    assert "the module is imported" in planned.err


# ---------------------------------------------------------------------------------------------- help
def test_options_for_all_commands_stand_before_or_after_a_commands_name(rowpost: Program):
    path = str(rowpost.environment)
    bare = rowpost.with_environment(rowpost.environment)
    del bare.variables["ROWPOST_ENV"]

    before = bare("--env", path, "--json", "queue", "peek", "Sales")
    after = bare("queue", "peek", "Sales", "--env", path, "--json")

    assert before.json == after.json
    assert json.loads(before.out)["queue"] == "Sales"
