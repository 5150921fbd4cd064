"""The dashboard's pages, operations and rights, by a real client against the real server on a real database."""

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

import httpx
import jsonschema
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from rowpost.dashboard import app, forms, monitor
from rowpost.dashboard.access import LoopbackAccess, ProxyAccess, TokenAccess
from rowpost.dashboard.api import openapi
from rowpost.dashboard.connections import Pool
from rowpost.dashboard.server import access_for, below
from rowpost.deploy.apply import apply
from rowpost.deploy.grants import grant_role
from rowpost.deploy.plan import plan
from rowpost.errors import SettingsError
from rowpost.operations import purging
from rowpost.settings.saga import SagaSettings
from rowpost.transport.controls import list_controls
from rowpost.transport.delayed_messages import DelayedMessages
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage, encode_headers
from tests.support.dashboard import Browser, failed_headers, serving
from tests.support.logins import logins
from tests.support.workers import eventually

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def site(target) -> Iterator[Starlette]:
    if target.babelfish:
        pytest.skip("Babelfish has no HAS_PERMS_BY_NAME for objects")
    yield app(target.settings, access=LoopbackAccess())


@pytest.fixture(scope="module")
def client(site) -> Iterator[Browser]:
    with serving(site) as client:
        yield client


@pytest.fixture
def error(database, sql) -> Queue:
    for name in ("error", "Sales", "Billing"):
        sql.empty(name)
    return Queue("error", database)


def only_row(queue: Queue) -> int:
    (message,) = queue.browse(2)
    return message.row_version


# ------------------------------------------------------------------ protection
def test_every_answer_forbids_inline_scripts_frames_and_caches(client):
    for path in ("/", "/failed", "/nothing", "/static/dashboard.css", "/api/v1/queues", "/api/v1/nothing"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith(
            "default-src 'none'; script-src 'self'; style-src 'self';"
        ), path
        assert "unsafe" not in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert (headers["cache-control"], headers["x-frame-options"], headers["x-content-type-options"]) == (
            "no-store",
            "DENY",
            "nosniff",
        )


def test_pages_hold_no_inline_script_style_or_handler(client, error, database):
    error.send(b"{}", failed_headers())
    for path in (
        "/",
        "/queue/error",
        "/failed",
        f"/failed/{only_row(error)}",
        f"/failed/{only_row(error)}/edit",
        "/deployment?verify=1",
    ):
        text = client.get(path).text
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! src=)", text), path
        assert not re.search(r'(?:src|href)="(?:https?:)?//', text), path


def test_what_a_sender_wrote_is_escaped_everywhere(client, error, queue):
    headers = failed_headers(SCRIPT, error=SCRIPT, kind=SCRIPT) | {SCRIPT: SCRIPT, "Odd": "a\u202eb\x1b[31m"}
    error.send(SCRIPT.encode(), headers)
    queue.send(SCRIPT.encode(), headers)
    row, other = only_row(error), only_row(queue)

    for path in (
        "/queue/Sales",
        f"/message/{other}/Sales",
        "/failed",
        f"/failed/{row}",
        f"/failed/{row}/edit",
        f"/failed/{row}/discard",
    ):
        text = client.get(path).text
        assert "<script>alert" not in text, path
        assert "\u202e" not in text
        assert "\x1b" not in text


def test_an_operation_without_the_forms_token_or_from_another_site_changes_nothing(client, error):
    error.send(b"{}", failed_headers())
    row = only_row(error)
    client.get("/")

    answers = [
        client.post(f"/failed/{row}/retry"),
        client.post(f"/failed/{row}/retry", data={"form_token": "0" * 64}),
        client.post("/purge/error", data={"confirm": "error"}),
    ]
    page = client.get(f"/failed/{row}").text
    token = re.search(r'name="form_token" value="(\w+)"', page)[1]
    answers.append(
        client.post(f"/failed/{row}/retry", data={"form_token": token}, headers={"Sec-Fetch-Site": "cross-site"})
    )

    assert [answer.status_code for answer in answers] == [403] * 4
    assert error.peek() == 1


def test_a_page_elsewhere_cannot_reach_loopback_by_its_own_name(client):
    assert client.get("/", headers={"Host": "evil.example:80"}).status_code == 403
    assert client.get("/api/v1/queues", headers={"Host": "evil.example"}).status_code == 403


def test_another_address_needs_a_token_or_a_proxy(tmp_path):
    token = tmp_path / "token"
    token.write_text("a" * 32 + "\n")

    for host in ("0.0.0.0", "::", "10.1.2.3", "example.org"):
        with pytest.raises(SettingsError, match="--token-file"):
            access_for(host, None, None, None, ())
    with pytest.raises(SettingsError, match="16"):
        access_for("0.0.0.0", None, "short", None, ())
    with pytest.raises(SettingsError, match="--proxy"):
        access_for("0.0.0.0", None, None, "X-User", ())

    assert isinstance(access_for("0.0.0.0", token, None, None, ()), TokenAccess)
    assert isinstance(access_for("0.0.0.0", None, None, "X-User", ("10.0.0.1",)), ProxyAccess)
    assert isinstance(access_for("127.0.0.1", None, None, None, ()), LoopbackAccess)


def test_a_token_signs_in_a_browser_and_a_program(target):
    with serving(app(target.settings, access=TokenAccess("t" * 32))) as client:
        first, form = client.get("/"), client.get("/sign-in")
        refused = client.get("/api/v1/queues")
        wrong = client.submit("/sign-in", "/sign-in", token="no")
        program = client.get("/api/v1/queues", headers={"Authorization": f"Bearer {'t' * 32}"})
        client.submit("/sign-in", "/sign-in", token="t" * 32)
        signed_in = client.get("/")

    assert (first.status_code, first.headers["location"]) == (303, "/sign-in")
    assert [each.status_code for each in (refused, wrong, program, signed_in)] == [403, 403, 200, 200]
    assert [str(target.settings.target) in each.text for each in (form, wrong, signed_in)] == [False, False, True]


def test_a_users_header_counts_only_from_the_proxy(target):
    for proxies, status in (("127.0.0.1",), 200), (("10.0.0.1",), 403):
        with serving(app(target.settings, access=ProxyAccess("X-User", proxies))) as client:
            assert client.get("/", headers={"X-User": "ada"}).status_code == status
            assert client.get("/").status_code == 403


def test_it_can_be_mounted_in_another_application(target):
    inner = app(target.settings)
    with serving(Starlette(routes=[Mount("/ops/queues", inner)])) as client:
        text = client.get("/ops/queues/").text
        page = client.get("/ops/queues/queue/Sales")
    inner.state.site.close()

    assert 'href="/ops/queues/static/dashboard.css' in text
    assert 'href="/ops/queues/queue/Sales"' in text
    assert page.status_code == 200


@pytest.mark.parametrize("removed", [False, True], ids=["whole-path", "proxy-removes-it"])
def test_it_is_served_below_a_path(target, error, removed):
    error.send(b"{}", failed_headers())
    way = "" if removed else "/ops/queues"
    with serving(below(app(target.settings, access=TokenAccess("t" * 32)), "/ops/queues/")) as client:
        first = client.get(f"{way}/")
        cookies = {
            "Cookie": first.headers["set-cookie"].partition(";")[0]
        }  # a proxy's browser sends it, whatever the proxy removes
        form = client.get(f"{way}/sign-in", headers=cookies)
        mark = re.search(r'name="form_token" value="(\w+)"', form.text)[1]
        signed_in = client.post(f"{way}/sign-in", data={"token": "t" * 32, "form_token": mark}, headers=cookies)
        bearer = {"Authorization": f"Bearer {'t' * 32}"}
        pages = [
            client.get(f"{way}{path}", headers=bearer)
            for path in ("/", "/queue/Sales", "/failed", "/workers", f"/failed/{only_row(error)}")
        ]
        document = client.get(f"{way}/api/v1/openapi.json", headers=bearer).json()
        file, missing = client.get(f"{way}/static/dashboard.css"), client.get(f"{way}/api/v1/nothing", headers=bearer)

    addresses = {address for page in pages for address in re.findall(r'(?:href|src|action)="([^"]*)"', page.text)}
    assert (first.headers["location"], signed_in.headers["location"]) == ("/ops/queues/sign-in", "/ops/queues/")
    assert "Path=/ops/queues;" in first.headers["set-cookie"]
    assert "Path=/ops/queues;" in signed_in.headers["set-cookie"]
    assert {page.status_code for page in pages} == {200}
    assert [
        address for address in addresses if address.startswith("/") and not address.startswith("/ops/queues/")
    ] == []
    assert (document["servers"], file.status_code, missing.json()["error"]) == (
        [{"url": "/ops/queues"}],
        200,
        "There is no such page.",
    )


@pytest.mark.parametrize("prefix", ["rowpost", "//x", "/a b", "/a?b", "/ä"])
def test_a_prefix_of_another_form_is_refused(prefix):
    with pytest.raises(SettingsError, match="--prefix"):
        below(Starlette(), prefix)


# ------------------------------------------------------------------ pages
def test_the_queues_are_listed_with_their_depths(client, queue, error):
    queue.send_many(OutgoingMessage(b"{}") for _ in range(3))

    (found,) = [each for each in client.get("/api/v1/queues").json()["queues"] if each["queue"] == "Sales"]
    text = client.text("/")

    assert found["waiting"] in (0, 3)  # a figure may be a second old
    assert all(name in text for name in ("Sales", "Billing", "error", "audit"))
    assert "Billing" not in client.text("/?search=sal").partition("queues, measured")[2]


def test_a_queue_is_browsed_page_by_page(client, queue):
    queue.send_many(OutgoingMessage(b'{"Number":%d}' % number) for number in range(120))

    seen, path = [], "/queue/Sales"
    while path:
        page = client.get(path).text
        seen += re.findall(r"&#34;Number&#34;:(\d+)", page)
        more = re.search(r'href="(\?after=\d+)">Next', page)
        path = more and f"/queue/Sales{more[1]}"

    assert seen == [str(number) for number in range(120)]


def test_a_name_with_odd_characters_has_a_page(client, make_queue):
    queue = make_queue("Odd/name# &é")
    queue.send(b"{}")

    address = eventually(lambda: re.search(r'href="(/queue/Odd[^"]*)"', client.get("/").text), "the queue is listed")
    text = client.get(httpx.URL(address[1])).text

    assert "Odd/name# &amp;é" in text


def test_what_does_not_exist_is_a_page_in_plain_words(client):
    for path in (
        "/queue/Nowhere",
        "/failed/999999999",
        "/message/1/Sales",
        "/saga/No_Such",
        "/nothing",
        "/failed?queue=Nowhere",
    ):
        answer = client.get(path)
        assert answer.status_code == 404, path
        assert "Traceback" not in answer.text
    assert client.get("/queue/Sales?after=x").status_code == 400


def test_failed_messages_are_grouped_and_searched(client, error):
    error.send_many(OutgoingMessage(b"{}", failed_headers("no such order")) for _ in range(3))
    error.send(b"{}", failed_headers("slow", error="System.TimeoutException"))
    error.send(b"poison", "{")

    groups = client.get("/api/v1/failed").json()["groups"]
    found = client.get("/api/v1/failed", params={"exception": "timeout"}).json()
    text = client.text("/failed")

    assert [(each["count"], each["exception_type"]) for each in groups] == [
        (3, "builtins.ValueError"), (1, "System.TimeoutException"), (1, "(headers cannot be read)")
    ]  # fmt: skip
    assert (found["matched"], found["messages"][0]["exception"]) == (1, "slow")
    assert "TimeoutException" in text


def test_pages_of_failed_messages_reach_each_once(client, error):
    error.send_many(OutgoingMessage(b"", failed_headers(str(number))) for number in range(130))

    seen, after = [], None
    while True:
        page = client.get("/api/v1/failed", params={"after": after} if after else {}).json()
        seen += [each["exception"] for each in page["messages"]]
        after = page["after"]
        if after is None:
            break

    assert seen == [str(number) for number in range(130)]


def test_sagas_are_found_and_shown(client, target, database):
    apply(database, plan(replace(target.settings, sagas=(SagaSettings("Dash_Policy", "OrderId"),))))
    empty = client.text("/saga/Dash_Policy")
    for number in range(60):
        database.call(
            "insert_saga", "Dash_Policy", id=uuid4(), correlation_value=f"A {number}", data=f'{{"OrderId":"A {number}","Note":"{SCRIPT}"}}',
            metadata="{}", persistence_version="1.0", saga_type_version="1.0",
        )  # fmt: skip

    types = client.text("/sagas")
    first = client.get("/saga/Dash_Policy").text
    second = client.get(f"/saga/Dash_Policy{re.search(r'href=.([?]after=[^&]*?).>Next', first)[1]}").text
    shown = client.get("/saga/Dash_Policy", params={"instance": "A 7"}).text

    assert "No active instances." in empty
    assert "Dash_Policy" in types
    assert (first.count("?instance="), second.count("?instance=")) == (50, 10)
    assert "A 7" in shown
    assert SCRIPT not in first + second + shown
    assert client.get("/saga/Dash_Policy", params={"instance": "B"}).status_code == 404


def test_a_reader_of_bodies_finds_an_instance_that_it_may_only_list(target, sql, database):
    apply(database, plan(replace(target.settings, sagas=(SagaSettings("Dash_Read", "OrderId"),))))
    for value in ("A", "B"):
        database.call(
            "insert_saga", "Dash_Read", id=uuid4(), correlation_value=value, data=f'{{"OrderId":"{value}"}}', metadata="{}",
            persistence_version="1.0", saga_type_version="1.0",
        )  # fmt: skip

    with logins(sql, target.url) as made:
        name = made.make("reader")
        sql.run(grant_role(database.dialect, "rowpost_body_reader", name))
        with serving(app(replace(target.settings, url=made.url(name)))) as client:
            answers = [
                client.get("/api/v1/saga-instance", params={"saga": "Dash_Read", "instance": value})
                for value in ("B", "C")
            ]

    assert (answers[0].json()["found"]["state"], answers[1].status_code) == ({"OrderId": "B"}, 404)


def test_the_deployment_is_shown_and_verified(client, target):
    text = client.text("/deployment?verify=1")

    assert "Differences from the plan" in text
    assert "url" not in client.get("/api/v1/deployment").json()


# ------------------------------------------------------------------ operations
def test_a_message_is_retried_and_the_operation_is_logged(client, error, queue, caplog):
    error.send(b'{"OrderId":1}', failed_headers())
    row = only_row(error)

    with caplog.at_level(logging.INFO, "rowpost.dashboard.operations"):
        answer = client.submit(f"/failed/{row}", f"/failed/{row}/retry")

    assert answer.status_code == 303
    assert f"Moved message {row} to Sales." in client.text(answer.headers["location"])
    assert (error.peek(), [message.body for message in queue.browse()]) == (0, [b'{"OrderId":1}'])
    (record,) = caplog.records
    assert {
        "operation": "retry",
        "user": "local",
        "row": row,
        "outcome": "done",
        "to": "Sales",
    }.items() <= record.operation.items()


def test_a_purge_whose_time_is_over_says_that_messages_wait(client, queue, monkeypatch):
    monkeypatch.setattr(forms, "LONGEST_S", -1.0)
    monkeypatch.setattr(purging, "BATCH", 2)
    queue.send_many(OutgoingMessage(b"{}") for _ in range(5))

    done = client.submit("/purge/Sales", "/purge/Sales", confirm="Sales")

    assert "Deleted 2 messages from Sales. More messages wait" in client.text(done.headers["location"])
    assert queue.peek() == 3


def test_a_message_is_edited_and_keeps_the_ends_of_its_lines(client, error, queue):
    error.send(b"one\ntwo\n", headers := failed_headers())
    row = only_row(error)

    wrong = client.submit(f"/failed/{row}/edit", f"/failed/{row}/edit", body="x", headers="{", to="Sales")
    client.submit(
        f"/failed/{row}/edit", f"/failed/{row}/edit", body="one\r\nthree\r\n", headers='{"Shop.Note": "n"}', to="Sales"
    )

    (message,) = queue.browse()
    assert (wrong.status_code, "not JSON" in wrong.text) == (400, True)
    assert (message.body, message.headers["Shop.Note"]) == (b"one\nthree\n", "n")
    assert message.message_id != headers["NServiceBus.MessageId"]


def test_a_message_is_discarded_with_a_reason(client, error, queue, caplog):
    error.send(b"{}", failed_headers())
    row = only_row(error)
    page = f"/failed/{row}/discard"

    unsaid = client.submit(page, page, reason="  ")
    kept = error.peek()
    with caplog.at_level(logging.INFO, "rowpost.dashboard"):
        client.submit(page, page, reason="the order was cancelled")

    assert (unsaid.status_code, "write why" in unsaid.text, kept) == (400, True, 1)
    assert (error.peek(), queue.peek()) == (0, 0)
    assert [record.operation["reason"] for record in caplog.records if hasattr(record, "operation")] == [
        "the order was cancelled"
    ]


def test_a_purge_needs_the_queues_name(client, queue):
    queue.send_many(OutgoingMessage(b"{}") for _ in range(5))

    wrong = client.submit("/purge/Sales", "/purge/Sales", confirm="sales")
    kept = queue.peek()
    done = client.submit("/purge/Sales", "/purge/Sales", confirm="Sales")

    assert (wrong.status_code, kept) == (400, 5)
    assert (done.status_code, queue.peek()) == (303, 0)
    assert "Deleted 5 messages from Sales." in client.text(done.headers["location"])


def test_a_queue_is_paused_limited_and_resumed(client, queue, database):
    def control(**fields):
        answer = client.submit("/queue/Sales", "/control/Sales", **fields)
        return client.text(answer.headers["location"])

    paused = control(operation="pause", reason="closed")
    listed = client.text("/")
    limited = control(operation="limit", limit="3", shared="1")
    held = client.get("/api/v1/queue", params={"queue": "Sales"}).json()["control"]
    resumed, cleared = control(operation="resume"), control(operation="clear")

    assert "Paused Sales" in paused
    assert re.search(r"Operators have set: paused – closed \(.+\)", paused)
    assert "go on receiving" in paused
    assert "paused" in listed
    assert "paused, 3 workers in all supervisors together" in limited
    assert (held["paused"], held["limit"], held["shared"]) == (True, 3, True)
    assert ["Resumed Sales" in resumed, "Operators have set" in cleared, list_controls(database)] == [True, False, []]


@pytest.mark.parametrize(
    "fields", [{"operation": "limit"}, {"operation": "limit", "limit": "0"}, {"operation": "stop"}, {}]
)
def test_a_form_that_says_nothing_controls_nothing(client, queue, database, fields):
    answer = client.submit("/queue/Sales", "/control/Sales", **fields)

    assert (answer.status_code, list_controls(database)) == (400, [])


def delay(database, **headers):
    database.call(
        "delay_message",
        "Sales",
        headers=encode_headers({"NServiceBus.MessageId": str(uuid4()), **headers}),
        body=b"{}",
        delay_ms=3_600_000,
    )


def test_delayed_messages_are_shown_sent_now_and_cancelled(client, queue, database, caplog):
    messages = DelayedMessages("Sales", database)
    for each in messages.browse():
        messages.cancel(each.key)
    for _ in range(3):
        delay(database, **{"NServiceBus.EnclosedMessageTypes": SCRIPT})
    first, second, third = (each.key for each in messages.browse())

    page = client.get("/queue/Sales").text
    listed = client.get("/api/v1/delayed", params={"queue": "Sales", "count": 2}).json()
    sent = client.submit("/queue/Sales", "/delayed/Sales", operation="send-now", key=first)
    unsaid = client.submit("/queue/Sales", "/delayed/Sales", operation="cancel", key=second)
    with caplog.at_level(logging.INFO):
        cancelled = client.submit(
            "/queue/Sales", "/delayed/Sales", operation="cancel", key=second, reason="no longer wanted"
        )
    gone = client.submit("/queue/Sales", "/delayed/Sales", operation="cancel", key=second, reason="again")

    assert (SCRIPT in page, page.count("Send now"), len(listed["messages"]), listed["more"]) == (False, 3, 2, True)
    assert [answer.status_code for answer in (sent, unsaid, cancelled, gone)] == [303, 400, 303, 404]
    assert [(each.key == third, each.due > datetime.now(UTC)) for each in messages.browse()] == [
        (False, False),
        (True, True),
    ]
    assert "no longer wanted" in caplog.text


def test_messages_in_hand_are_shown_with_their_host(client, database, sql):
    sql.run("DELETE FROM rowpost.supervisor")
    workers = '[{"queue": "Sales", "process_id": 777, "state": "busy", "seconds": 4.0, "message": "the-message", "message_seconds": 3.0}]'
    database.call(
        "report_supervisor", supervisor_id=uuid4(), host_name="host-9", process_id=1, environment="e", rowpost_version="1", queues='["Sales"]', workers=workers,
    )  # fmt: skip

    shown, other = client.text("/queue/Sales"), client.text("/queue/Billing")
    sql.run("DELETE FROM rowpost.supervisor")

    assert ["the-message" in shown, "host-9" in shown, "777" in shown, "the-message" in other] == [
        True,
        True,
        True,
        False,
    ]


def test_leased_messages_are_shown_with_their_owner_and_progress(client, database, sql):
    sql.empty("Sales")
    Queue("Sales", database).send(b"x")
    row = database.call_atomically("lease_messages", "Sales", count=1, owner="host-9/777/1", seconds=60)[0]
    renewed = json.dumps([{"token": str(row[5]), "percent": 40, "text": SCRIPT}])
    database.call("renew_leases", "Sales", leases=renewed, seconds=60)
    worker = {
        "queue": "Sales", "process_id": 777, "state": "busy", "seconds": 4.0, "message": str(row[0]), "message_seconds": 3.0
    }  # fmt: skip
    database.call(
        "report_supervisor", supervisor_id=uuid4(), host_name="host-9", process_id=1, environment="e", rowpost_version="1", queues='["Sales"]',
        workers=json.dumps([worker]),
    )  # fmt: skip

    queue, workers = client.text("/queue/Sales"), client.text("/workers")
    documents = client.get("/api/v1/supervisors").json()["supervisors"]
    sql.run("DELETE FROM rowpost.supervisor")
    database.call("end_lease", "Sales", token=row[5])

    shown = f"40 %, {SCRIPT}"
    assert [text in queue for text in ("host-9/777/1", str(row[0]), shown)] == [True] * 3
    assert shown in workers
    assert [each["workers"][0]["progress_percent"] for each in documents] == [40]


@pytest.mark.parametrize(
    ("queues", "workers"),
    [
        ("[]", "[{}]"),
        ("no JSON", "[]"),
        ("7", "7"),
        ("[]", "[" * 50_000),
        ("[]", '[{"queue": 1, "process_id": "x", "state": [], "seconds": NaN}]'),
    ],
)
def test_a_report_that_cannot_be_read_is_shown_as_such_and_ends_nothing(site, client, database, sql, queues, workers):
    sql.run("DELETE FROM rowpost.supervisor")
    now = "now()" if database.engine == "postgresql" else "SYSUTCDATETIME()"
    sql.run(
        f"INSERT INTO rowpost.supervisor VALUES (?, 'host-9', 1, 'e', '1', 'forger', {now}, {now}, ?, ?)",
        uuid4(),
        queues,
        workers,
    )
    try:
        site.state.site.monitor.expire()
        pages = {
            path: client.get(path).status_code
            for path in ("/", "/queue/Sales", "/workers", "/api/v1/queues", "/api/v1/supervisors")
        }
        text, (found,) = client.text("/workers"), client.get("/api/v1/supervisors").json()["supervisors"]
    finally:
        sql.run("DELETE FROM rowpost.supervisor")

    assert set(pages.values()) == {200}
    assert "Its report cannot be read." in text
    assert (found["unreadable"], found["workers"], found["queues"]) == (True, [], [])


def test_the_monitor_goes_on_after_any_error(site, monkeypatch, caplog):
    tried = []
    watching = monitor.Monitor(site.state.site.pool, interval_s=0.01)
    monkeypatch.setattr(watching, "latest", lambda age: tried.append(age) or 1 / 0)

    with caplog.at_level(logging.ERROR, "rowpost.dashboard"):
        watching.start()
        eventually(lambda: len(tried) > 3, "it measures again")
        watching.stop()

    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


def test_supervisors_and_workers_of_all_hosts_are_shown(client, database, sql):
    sql.run("DELETE FROM rowpost.supervisor")
    workers = '[{"queue": "Sales", "process_id": 12345, "state": "busy", "seconds": 4.0, "message": "11111111-0000-0000-0000-000000000001", "message_seconds": 3.0}]'
    reported = {
        "process_id": 99,
        "environment": "shop",
        "rowpost_version": "1.0",
        "queues": '["Sales"]',
        "workers": workers,
    }
    for host in ("host-1", "<host-2>"):
        database.call("report_supervisor", supervisor_id=uuid4(), host_name=host, **reported)
    sql.run("UPDATE rowpost.supervisor SET seen_at = '2020-01-01' WHERE host_name = 'host-1'")

    text, found = client.text("/workers"), client.get("/api/v1/supervisors").json()["supervisors"]
    sql.run("DELETE FROM rowpost.supervisor")

    assert ["host-1" in text, "<host-2>" in text, "12345" in text, "11111111-0000-0000-0000-000000000001" in text] == [
        True
    ] * 4
    assert [(each["host"], each["gone"], each["workers"][0]["state"]) for each in found] == [
        ("<host-2>", False, "busy"),
        ("host-1", True, "busy"),
    ]
    assert text.count("It has died") == 1
    assert "No supervisor has reported" in client.text("/workers")


def test_a_dashboard_that_only_reads_offers_and_does_nothing(target, error):
    error.send(b"{}", failed_headers())
    row = only_row(error)
    site = app(target.settings, read_only=True)

    with serving(site) as client:
        text = client.get(f"/failed/{row}").text + client.get("/queue/error").text + client.get("/failed").text
        client.get("/")
        token = site.state.site.forgery.token(client.cookies["rowpost_form"])
        refused = [
            client.post(path, data={"form_token": token, "confirm": "error", "operation": "pause"})
            for path in (f"/failed/{row}/retry", f"/failed/{row}/discard", "/purge/error", "/control/error")
        ]

    assert not re.search("Retry|Purge …|Discard|Pause", text)
    assert [answer.status_code for answer in refused] == [403] * 4
    assert error.peek() == 1


def test_a_reader_without_bodies_sees_everything_else_and_a_sentence_in_their_place(target, sql, error, database):
    error.send(b"secret", failed_headers())
    row = only_row(error)
    apply(database, plan(replace(target.settings, sagas=(SagaSettings("Dash_Hidden", "OrderId"),))))

    with logins(sql, target.url) as made:
        name = made.make("reader")
        sql.run(grant_role(database.dialect, "rowpost_reader", name))
        with serving(app(replace(target.settings, url=made.url(name)))) as client:
            paths = ("/queue/error", f"/message/{row}/error", f"/failed/{row}", "/saga/Dash_Hidden")
            pages = [client.get(path) for path in paths]
            document = client.get("/api/v1/message", params={"queue": "error", "row": row}).json()

    assert [page.status_code for page in pages] == [200] * 4
    assert all("rowpost_body_reader" in page.text for page in pages)
    assert not any("secret" in page.text for page in pages)
    assert "NServiceBus.FailedQ" in pages[1].text and str(document["body_bytes"]) == "6"
    assert (document["body"], "rowpost_body_reader" in document["withheld"]) == (None, True)


def test_a_reader_is_offered_no_operation_and_the_server_refuses_each(target, sql, error):
    error.send(b"{}", failed_headers())
    row = only_row(error)

    with logins(sql, target.url) as made:
        name = made.make("reader")
        sql.run(
            f"GRANT rowpost_reader TO {name}"
            if target.settings.engine == "postgresql"
            else f"ALTER ROLE rowpost_reader ADD MEMBER {name}"
        )
        site = app(replace(target.settings, url=made.url(name)))
        with serving(site) as client:
            pages = [
                client.get(path)
                for path in (
                    "/",
                    "/queue/error",
                    "/failed",
                    f"/failed/{row}",
                    "/subscriptions",
                    "/schedules",
                    "/sagas",
                    "/workers",
                    "/follow?id=m-1",
                    "/deployment",
                )
            ]
            token = site.state.site.forgery.token(client.cookies["rowpost_form"])
            refused = [
                client.post(
                    path,
                    data={
                        "form_token": token,
                        "confirm": "error",
                        "headers": "{}",
                        "to": "Sales",
                        "operation": "pause",
                    },
                )
                for path in (
                    f"/failed/{row}/retry",
                    f"/failed/{row}/discard",
                    f"/failed/{row}/edit",
                    "/purge/error",
                    "/control/error",
                )
            ]

    assert [page.status_code for page in pages] == [200] * 10
    assert not re.search("Retry|Purge …|Discard|Pause", "".join(page.text for page in pages))
    assert [answer.status_code for answer in refused] == [403] * 5
    assert error.peek() == 1


# ------------------------------------------------------------------ the database
def test_a_database_that_does_not_answer_is_a_page(target):
    url = (
        "postgresql://nobody@127.0.0.1:1/none"
        if target.settings.engine == "postgresql"
        else "Server=127.0.0.1,1;UID=x;PWD=y"
    )
    with serving(app(replace(target.settings, url=url))) as client:
        answers = [client.get(path) for path in ("/", "/failed", "/api/v1/queues")]

    assert [answer.status_code for answer in answers] == [503] * 3
    assert "The database cannot answer" in answers[0].text
    assert set(answers[2].json()) == {"error", "kind"}


def test_a_queue_whose_table_is_locked_does_not_hide_the_others(target, queue, open_database):
    if target.settings.engine != "postgresql":
        pytest.skip("locks a table with PostgreSQL's statement")
    queue.send(b"{}")
    holder = open_database()
    with serving(app(target.settings)) as client:
        with holder.transaction():
            holder.driver_connection.execute('LOCK TABLE "Billing" IN ACCESS EXCLUSIVE MODE')
            found = {each["queue"]: each for each in client.get("/api/v1/queues").json()["queues"]}
            page = client.get("/queue/Billing")

    assert (found["Sales"]["waiting"], found["Sales"]["problem"]) == (1, None)
    assert "lock" in found["Billing"]["problem"]
    assert (page.status_code, "lock" in page.text) == (503, True)


def test_the_history_is_bounded_and_forgets_dropped_queues(target, make_queue, sql, monkeypatch):
    monkeypatch.setattr(monitor, "KEPT", 5)
    made = make_queue()
    pool = Pool(target.settings)
    watching = monitor.Monitor(pool)
    for _ in range(9):
        watching.latest(0)
    kept = len(watching.history(made.name))
    sql.drop_queue(made.name)
    watching.latest(0)
    pool.close()

    assert (kept, watching.history(made.name)) == (5, [])


def test_a_statement_ends_at_its_limit(target):
    pool = Pool(target.settings, statement_ms=200)
    with pool.connection() as database, pytest.raises(Exception, match=r"statement timeout|Query timeout"):
        if target.settings.engine == "postgresql":
            database.driver_connection.execute("SELECT pg_sleep(20)")
        else:
            database.driver_connection.execute("WAITFOR DELAY '00:00:20'")
    pool.close()


# ------------------------------------------------------------------ the interface
def test_every_path_of_the_interface_is_in_the_document_and_answers_as_it_says(client, error, queue, database):
    error.send(b"{}", failed_headers())
    queue.send(b"\xff\x00", {"a": None})
    database.call_atomically("subscribe", endpoint="Billing", topic="Shop.OrderPlaced", queue_address="Billing")
    document = client.get("/api/v1/openapi.json").json()
    arguments = {
        "queue": "Sales", "saga": "None", "schedule": "None", "instance": str(uuid4()), "row": None, "count": 10, "id": str(uuid4()),
        "number": database.call("record_operation", operation_name="pause", client="test", queue_name="Sales")[0].operation_id,
    }  # fmt: skip

    assert document == openapi()
    for path, methods in document["paths"].items():
        if "get" not in methods:
            continue
        names = [each["name"] for each in methods["get"]["parameters"] if each["required"] or each["name"] == "count"]
        given = {name: value for name, value in arguments.items() if name in names}
        if "row" in given:
            given["row"] = only_row(error if "failed" in path else queue)
        answer = client.get(path, params=given)
        status = "200" if answer.status_code == 200 else "default"
        schema = methods["get"]["responses"][status]["content"]["application/json"]["schema"]
        jsonschema.validate(answer.json(), {**schema, "components": document["components"]})
        assert answer.status_code == (404 if {"saga", "schedule"} & set(names) else 200), path


def test_the_document_names_every_path_that_answers(site):
    answered = {route.path for route in site.routes if route.path.startswith("/api/")}

    assert answered == {*openapi()["paths"], "/api/v1/openapi.json"}


def test_a_queues_workers_and_the_age_of_its_oldest_message_are_drawn_over_time(client, site, database, queue, sql):
    for table in ("supervised_queue", "supervisor"):
        sql.run(f"DELETE FROM rowpost.{table}")
    queue.send(b"{}", {"NServiceBus.TimeSent": "2026-04-29 21:56:55:590807 Z"})
    workers = [{"queue": "Sales", "process_id": number, "state": "idle", "seconds": 1.0} for number in (1, 2)]
    database.call(
        "report_supervisor", supervisor_id=uuid4(), host_name="host-1", process_id=7, environment="shop", rowpost_version="1",
        queues='["Sales"]', workers=json.dumps(workers),
    )  # fmt: skip
    for _ in range(2):
        site.state.site.monitor.latest(0)

    page = client.get("/queue/Sales").text

    assert [point.workers for point in site.state.site.monitor.history("Sales")][-2:] == [2, 2]
    assert re.search(r"Workers <span class=\"muted\">highest 2", page)
    assert "Oldest, seconds over time" in page


# ------------------------------------------------------------------ one message and its conversation
def test_a_message_is_followed_from_its_failure_to_what_is_known_of_it(client, error):
    error.send(
        b"{}",
        failed_headers(SCRIPT) | {"NServiceBus.OriginatingEndpoint": SCRIPT, "NServiceBus.ConversationId": SCRIPT},
    )
    row = only_row(error)
    message = client.get("/api/v1/failed-message", params={"row": row}).json()["failure"]["message_id"]

    page, document = (
        client.get(f"/follow?id={message}").text,
        client.get("/api/v1/message-life", params={"id": message}).json(),
    )

    assert f'href="/follow?id={message}"' in client.get(f"/failed/{row}").text
    assert SCRIPT not in page
    assert [(fact["kind"], fact["row_version"]) for fact in document["facts"]] == [("sent", None), ("failed", row)]
    assert f'href="/failed/{row}?queue=error"' in page
    assert document["conversation_id"] == SCRIPT


def test_a_conversation_is_shown_as_a_tree(client, error, database):
    conversation = str(uuid4())
    caused = failed_headers() | {
        "NServiceBus.ConversationId": conversation,
        "NServiceBus.OriginatingEndpoint": "Billing",
    }
    first = {
        "NServiceBus.MessageId": str(uuid4()),
        "NServiceBus.ConversationId": conversation,
        "NServiceBus.OriginatingEndpoint": "Web",
    }
    Queue("Billing", database).send(b"{}", first)
    error.send(b"{}", caused | {"NServiceBus.RelatedTo": first["NServiceBus.MessageId"]})

    document = client.get("/api/v1/conversation", params={"id": conversation}).json()

    assert [(step["tree"], step["state"], step["endpoint"]) for step in document["steps"]] == [
        ("", "waiting", "Billing"),
        ("└─ ", "failed", "Sales"),
    ]
    assert client.text(f"/follow?conversation={conversation}").count("PlaceOrder") == 1


def test_a_sagas_timeouts_are_shown_with_its_instance(client, target, database, sql):
    apply(database, plan(replace(target.settings, sagas=(SagaSettings("Sales_Due", "OrderId"),))))
    sql.empty("Sales.Delayed")
    ids = uuid4(), uuid4()
    for number, each in enumerate(ids):
        database.call(
            "insert_saga", "Sales_Due", id=each, correlation_value=f"T {number}", data=f'{{"OrderId":"T {number}"}}', metadata="{}",
            persistence_version="1.0", saga_type_version="1.0",
        )  # fmt: skip
        headers = {
            "NServiceBus.SagaId": str(each),
            "NServiceBus.IsSagaTimeoutMessage": "True",
            "NServiceBus.EnclosedMessageTypes": "Shop.Expire",
        }
        database.call("delay_message", "Sales", headers=encode_headers(headers), body=b"{}", delay_ms=3_600_000)

    detail = client.get("/api/v1/saga-instance", params={"saga": "Sales_Due", "instance": "T 1"}).json()

    assert (detail["found"]["id"], [(each["queue"], each["message_type"]) for each in detail["timeouts"]]) == (
        str(ids[1]),
        [("Sales", "Shop.Expire")],
    )
    assert "Expire" in client.text("/saga/Sales_Due?instance=T%200")


def test_what_is_unknown_or_no_id_is_said(client):
    assert "Nothing is known of it here" in client.text(f"/follow?id={uuid4()}")
    assert "No message of this conversation" in client.text(f"/follow?conversation={uuid4()}")
    assert client.get("/follow?id=%C3%BC").status_code == 400
    assert "Follow a message" in client.text("/follow")
