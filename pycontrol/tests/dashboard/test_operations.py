"""Bulk operations and the operation log, by a real client against the real server on a real database."""

import logging
import re
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from starlette.applications import Starlette

from rowpost.dashboard import app, bulk
from rowpost.dashboard.access import LoopbackAccess, ProxyAccess
from rowpost.deploy.grants import grant, grant_role
from rowpost.operations import bulk as bulk_operations
from rowpost.operations.bulk import BulkOperation, FailedSelection
from rowpost.operations.log import Operator, find_operation, list_operations
from rowpost.transport.changes import FailureChange
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
    sql.run("DELETE FROM rowpost.operation_log")
    return Queue("error", database)


def fail(error, count, text="slow", **more):
    error.send_many(OutgoingMessage(b"%d" % number, failed_headers(text, **more)) for number in range(count))


def bodies(database, queue):
    return [int(message.body) for message in Queue(queue, database).browse(1000)]


def operation_of(answer) -> int:
    assert answer.status_code == 303, answer.text
    return int(re.match(r"/operation/(\d+)\?", answer.headers["location"])[1])


def ended(database, number):
    return eventually(
        lambda: (operation := find_operation(database, number)).state not in ("running", "interrupted") and operation,
        "the operation has ended",
    )


def hidden(page: str) -> dict[str, str]:
    """The hidden fields of a form, without its token."""
    return {
        name: value
        for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page)
        if name != "form_token"
    }


# ------------------------------------------------------------------ preview
def test_a_preview_counts_shows_examples_and_changes_nothing(client, error, database):
    fail(error, 7)
    fail(error, 1, SCRIPT)

    page = client.get("/failed/all?operation=retry&exception=slow")
    whole = client.get("/failed/all?operation=discard").text
    nothing = client.text("/failed/all?operation=retry&exception=nothing")
    document = client.get("/api/v1/preview", params={"exception": "slow"}).json()

    assert ("7 messages</strong> of error match (exception slow)" in page.text, page.text.count('href="/failed/')) == (
        True,
        5,
    )
    assert ('<button class="main">Retry 7 messages' in page.text, SCRIPT in whole) == (True, False)
    assert "there is nothing to do" in nothing
    assert (document["matched"], len(document["examples"]), document["more"], document["groups"][0]["count"]) == (
        7,
        5,
        False,
        7,
    )
    assert (error.peek(), list_operations(database)) == (8, [])


@pytest.mark.parametrize(
    "path",
    [
        "/failed/all",
        "/failed/all?operation=burn",
        "/failed/all?operation=retry&since=soon",
        "/failed?since=soon",
        "/operation/999999999",
    ],
)
def test_an_address_that_says_nothing_is_a_page_in_plain_words(client, error, path):
    answer = client.get(path)

    assert answer.status_code == (404 if path.startswith("/operation/") else 400)
    assert "Traceback" not in answer.text


def test_the_list_of_failures_leads_to_the_operations_with_its_filter(client, error):
    fail(error, 2)

    page = client.get("/failed?exception=slow&since=2026-01-01").text
    links = [each.replace("&amp;", "&") for each in re.findall(r'href="(/failed/all\?[^"]*)"', page)]

    assert len(links) == 5
    assert all("2 messages</strong>" in client.get(link).text for link in links)


# ------------------------------------------------------------------ bulk operations
def test_messages_are_retried_in_the_background_and_the_operation_is_on_record(client, error, database, caplog):
    fail(error, 230)
    fail(error, 2, "wrong")
    page = client.get("/failed/all?operation=retry&exception=slow").text
    fail(error, 3)

    with caplog.at_level(logging.INFO, "rowpost.dashboard.operations"):
        number = operation_of(
            client.submit("/failed/all?operation=retry&exception=slow", "/failed/all", **hidden(page), reason="mended")
        )
        operation = ended(database, number)
        shown = client.text(f"/operation/{number}")
        eventually(lambda: caplog.records, "the operation is logged")

    assert (sorted(bodies(database, "Sales")), error.peek()) == (list(range(230)), 5)
    assert (
        operation.name,
        operation.state,
        operation.done,
        operation.total,
        operation.user,
        operation.reason,
        operation.details["exception"],
    ) == (
        "retry-all",
        "done",
        230,
        230,
        "local",
        "mended",
        "slow",
    )
    assert all(text in shown for text in ("retry-all", "done", "230", "local", "mended"))
    assert "data-refresh" not in client.get(f"/operation/{number}").text
    assert (caplog.records[-1].operation["number"], caplog.records[-1].operation["done"]) == (number, 230)


def test_an_operation_on_a_cause_applies_to_that_cause_from_where_the_page_began(client, error, database):
    for text in ("slow", "wrong", "slow", "slow"):
        error.send(text.encode(), failed_headers(text))
    error.send(b"other", failed_headers("slow", error="Other"))
    found = client.get("/api/v1/failed", params={"exception": "slow"}).json()
    address = f"/failed/all?operation=retry&exception=slow&cause={found['groups'][0]['cause']}&after={found['messages'][0]['row_version']}"

    ended(database, operation_of(client.submit(address, "/failed/all", **hidden(client.get(address).text))))

    assert [message.body for message in Queue("Sales", database).browse()] == [b"slow", b"slow"]
    assert [message.body for message in error.browse()] == [b"slow", b"wrong", b"other"]


def test_messages_are_discarded_with_a_reason_moved_and_edited(client, error, database, sql):
    def operation(kind, **fields):
        return client.submit(f"/failed/all?operation={kind}", "/failed/all", operation=kind, queue="error", **fields)

    fail(error, 3)
    unsaid, nowhere, headless = (
        operation("discard", reason=" "),
        operation("move", to="Nowhere"),
        operation("edit", header=""),
    )
    kept = (error.peek(), list_operations(database))
    ended(database, operation_of(operation("discard", reason="test data")))
    fail(error, 4)
    ended(database, operation_of(operation("move", to="Billing")))
    fail(error, 2)
    edited = ended(database, operation_of(operation("edit", header="Shop.Tenant", value="s3cret")))

    assert [answer.status_code for answer in (unsaid, nowhere, headless)] == [400, 400, 400]
    assert ("write why" in unsaid.text, "Nowhere" in nowhere.text, "name a header" in headless.text, kept) == (
        True,
        True,
        True,
        (3, []),
    )
    assert (error.peek(), bodies(database, "Billing")) == (0, [0, 1, 2, 3])
    assert [message.headers["Shop.Tenant"] for message in Queue("Sales", database).browse()] == ["s3cret"] * 2
    assert [(found.name, found.done, found.reason) for found in list_operations(database)] == [
        ("edit-all", 2, None),
        ("move-all", 4, None),
        ("discard-all", 3, "test data"),
    ]
    assert (
        "s3cret"
        not in repr(sql.run("SELECT * FROM rowpost.operation_log")) + client.get(f"/operation/{edited.number}").text
    )


def test_an_operation_of_another_process_shows_its_progress_and_is_cancelled_here(
    client, error, database, open_database
):
    fail(error, 350)
    going, cancelled = threading.Event(), threading.Event()
    operation = BulkOperation.begin(
        open_database(), Operator("command line"), FailedSelection("error"), FailureChange("retry")
    )

    def wait(counts):
        if counts.done == 100:
            going.set()
            cancelled.wait(30)

    thread = threading.Thread(target=operation.run, args=(wait,))
    thread.start()
    going.wait(30)
    number = operation.counts.number
    page = client.get(f"/operation/{number}").text
    answer = client.submit(f"/operation/{number}", f"/operation/{number}/cancel")
    asked = client.get(f"/operation/{number}").text
    cancelled.set()
    thread.join(30)
    found, again = find_operation(database, number), client.submit("/purge/Sales", f"/operation/{number}/cancel")

    assert ('data-refresh="1"' in page, 'max="350" value="100"' in page, "Stopping …" in asked) == (True, True, True)
    assert (answer.status_code, found.state, found.done, error.peek(), found.cancelled_by.startswith("local (")) == (
        303,
        "cancelled",
        200,
        150,
        True,
    )
    assert "had already ended." in client.text(again.headers["location"])


def test_operations_that_a_dashboard_leaves_at_its_end_are_interrupted_and_go_on_in_the_next_one(
    target, client, error, database, monkeypatch
):
    monkeypatch.setattr(bulk_operations, "BATCH", 1)
    fail(error, 900)
    first = app(target.settings, access=LoopbackAccess())
    with serving(first) as leaving:
        number = operation_of(
            leaving.submit("/failed/all?operation=retry", "/failed/all", operation="retry", queue="error")
        )
    left = find_operation(database, number)
    page = client.text(f"/operation/{number}")

    client.submit(f"/operation/{number}", f"/operation/{number}/resume")
    found = ended(database, number)

    assert (left.state, "Go on" in page) == ("interrupted", True)
    assert (found.state, found.done, sorted(bodies(database, "Sales")), error.peek()) == (
        "done",
        900,
        list(range(900)),
        0,
    )


def test_an_edit_goes_on_only_with_its_value(client, error, database):
    fail(error, 150)
    operation = BulkOperation.begin(
        database, Operator("test"), FailedSelection("error"), FailureChange("edit", headers={"Shop.Tenant": "b"})
    )
    operation.run(stop=lambda: "interrupted" if operation.counts.done else None)
    page = f"/operation/{operation.counts.number}"

    asked = client.text(page)
    wrong = client.submit(page, f"{page}/resume", **{"value:Shop.Tenant": "c"})
    client.submit(page, f"{page}/resume", **{"value:Shop.Tenant": "b"})
    ended(database, operation.counts.number)

    assert (wrong.status_code, "Value of the header Shop.Tenant, as before" in asked) == (400, True)
    assert {message.headers["Shop.Tenant"] for message in Queue("Sales", database).browse(200)} == {"b"}


def test_an_operation_that_goes_on_cannot_be_taken_and_one_that_is_done_neither(client, error, database):
    fail(error, 1)
    operation = BulkOperation.begin(database, Operator("test"), FailedSelection("error"), FailureChange("retry"))
    going = client.submit("/purge/Sales", f"/operation/{operation.counts.number}/resume")
    operation.run()
    done = client.submit("/purge/Sales", f"/operation/{operation.counts.number}/resume")

    assert (going.status_code, done.status_code) == (409, 409)


# ------------------------------------------------------------------ the record
def test_each_operation_on_one_message_or_queue_is_on_record_with_the_user_whom_the_proxy_names(
    target, error, database
):
    for _ in range(3):
        error.send(b"{}", failed_headers())
    rows = [message.row_version for message in error.browse()]
    delayed = DelayedMessages("Sales", database)
    for each in delayed.browse():
        delayed.cancel(each.key)
    for number in range(2):
        database.call(
            "delay_message",
            "Sales",
            headers=encode_headers({"NServiceBus.MessageId": f"m-{number}"}),
            body=b"{}",
            delay_ms=3_600_000,
        )
    first, second = (each.key for each in delayed.browse())

    with serving(app(target.settings, access=ProxyAccess("X-User", ("127.0.0.1",)))) as client:
        client.headers["X-User"] = "ada@example.org"
        client.submit(f"/failed/{rows[0]}", f"/failed/{rows[0]}/retry")
        client.submit(
            f"/failed/{rows[1]}/edit",
            f"/failed/{rows[1]}/edit",
            body="x",
            headers='{"Shop.Note": "s3cret"}',
            to="Sales",
        )
        client.submit(f"/failed/{rows[2]}/discard", f"/failed/{rows[2]}/discard", reason="wrong order")
        client.submit("/purge/Sales", "/purge/Sales", confirm="Sales")
        for fields in (
            {"operation": "pause", "reason": "closed"},
            {"operation": "limit", "limit": "3"},
            {"operation": "clear"},
            {"operation": "resume"},
        ):
            client.submit("/queue/Sales", "/control/Sales", **fields)
        client.submit("/queue/Sales", "/delayed/Sales", operation="send-now", key=first)
        client.submit("/queue/Sales", "/delayed/Sales", operation="cancel", key=second, reason="not needed")
        refused = client.submit(
            "/queue/Sales", "/delayed/Sales", operation="cancel", key="no-such", reason="not needed"
        )
        text, listed = client.text("/operations"), client.get("/api/v1/operations").json()["operations"]
    found = list_operations(database)[::-1]

    assert refused.status_code == 404
    assert [(operation.name, operation.queue, operation.reason) for operation in found] == [
        ("retry", "error", None), ("edit", "error", None), ("discard", "error", "wrong order"), ("purge", "Sales", None), ("pause", "Sales", "closed"),
        ("limit", "Sales", None), ("limit", "Sales", None), ("resume", "Sales", None), ("send-now", "Sales", None), ("cancel-delayed", "Sales", "not needed"),
    ]  # fmt: skip
    assert {(operation.user, operation.client, operation.state, bool(operation.login)) for operation in found} == {
        ("ada@example.org", "dashboard", "done", True)
    }
    assert all(operation.message_id for operation in found[:3])
    assert (found[0].details["to"], found[5].details, found[9].message_id) == (
        "Sales",
        {"limit": 3, "shared": False},
        "m-1",
    )
    assert [operation.done for operation in found] == [1, 1, 1, 2, 0, 0, 0, 0, 1, 1]
    assert ("ada@example.org" in text, "wrong order" in text, "s3cret" in repr(found)) == (True, True, False)
    assert [each["number"] for each in listed] == [operation.number for operation in found[::-1]]


def test_an_operation_that_the_server_refuses_leaves_no_line(client, error, database):
    error.send(b"{}", failed_headers(queue="Nowhere"))
    row = error.browse()[0].row_version

    answer = client.submit(f"/failed/{row}", f"/failed/{row}/retry")

    assert (answer.status_code, error.peek(), list_operations(database)) == (404, 1, [])


def test_the_record_is_read_page_by_page_and_its_texts_are_escaped(client, error, database):
    for number in range(60):
        with Operator("test", SCRIPT).operation(database, "pause", "Sales", reason=f"{SCRIPT} {number}"):
            pass

    first = client.get("/operations").text
    second = client.get(re.search(r'href="(\?before=\d+)"', first)[1].join(("/operations", ""))).text
    numbers = re.findall(r'href="/operation/(\d+)"', first) + re.findall(r'href="/operation/(\d+)"', second)

    assert [int(number) for number in numbers] == [operation.number for operation in list_operations(database, 100)]
    assert SCRIPT not in first + client.get(f"/operation/{numbers[0]}").text


# ------------------------------------------------------------------ rights
def test_a_dashboard_that_only_reads_offers_and_begins_nothing(target, error, database):
    fail(error, 2)
    site = app(target.settings, read_only=True)
    with serving(site) as client:
        text = (
            client.get("/failed").text + client.get("/failed/all?operation=retry").text + client.get("/operations").text
        )
        token = site.state.site.forgery.token(client.cookies["rowpost_form"])
        refused = [
            client.post(path, data={"form_token": token, "operation": "retry"})
            for path in ("/failed/all", "/operation/1/cancel", "/operation/1/resume")
        ]
        refused.append(client.post("/api/v1/operations/begin", json={"operation": "retry"}))

    assert not re.search("Retry all|Retry 2|Cancel|Go on", text)
    assert [answer.status_code for answer in refused] == [403] * 4
    assert (error.peek(), list_operations(database)) == (2, [])


def test_a_reader_sees_the_record_and_may_neither_begin_cancel_nor_go_on(target, sql, error, database):
    fail(error, 150)
    operation = BulkOperation.begin(database, Operator("test"), FailedSelection("error"), FailureChange("retry"))
    operation.run(stop=lambda: "interrupted" if operation.counts.done else None)
    number = operation.counts.number

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
                for path in ("/operations", f"/operation/{number}", "/failed", "/failed/all?operation=retry")
            ]
            token = site.state.site.forgery.token(client.cookies["rowpost_form"])
            refused = [
                client.post(path, data={"form_token": token, "operation": "retry"})
                for path in ("/failed/all", f"/operation/{number}/cancel", f"/operation/{number}/resume")
            ]

    assert [page.status_code for page in pages] == [200] * 4
    assert not re.search("Retry all|Retry 5|>Cancel|Go on<", "".join(page.text for page in pages))
    assert [answer.status_code for answer in refused] == [403] * 3
    assert (find_operation(database, number).state, error.peek()) == ("interrupted", 50)


def test_a_login_that_may_read_and_receive_from_the_error_queue_operations_and_is_on_record(
    target, sql, error, database
):
    fail(error, 3)
    row = error.browse()[0].row_version
    with logins(sql, target.url) as made:
        name = made.make("endpoint")
        grant(sql.database, name, receive_from=["error"], send_to=["Sales"], sagas=[], tables=target.babelfish)
        sql.run(grant_role(sql.database.dialect, "rowpost_reader", name))
        with serving(app(replace(target.settings, url=made.url(name)))) as client:
            single = client.submit(f"/failed/{row}", f"/failed/{row}/retry")
            number = operation_of(
                client.submit("/failed/all?operation=retry", "/failed/all", operation="retry", queue="error")
            )
            operation = ended(database, number)

    assert (single.status_code, operation.state, operation.done, error.peek()) == (303, "done", 2, 0)
    assert {each.login for each in list_operations(database)} == {name.strip('"[]')}


# ------------------------------------------------------------------ the interface
def test_a_program_begins_watches_cancels_and_goes_on_with_an_operation(client, error, database):
    fail(error, 150)

    begun = client.post(
        "/api/v1/operations/begin", json={"operation": "retry", "exception": "slow", "reason": "mended"}
    ).json()
    operation = ended(database, begun["number"])
    read = client.get("/api/v1/operation", params={"number": begun["number"]}).json()
    late = client.post("/api/v1/operations/cancel", json={"number": begun["number"]}).json()
    again = client.post("/api/v1/operations/resume", json={"number": begun["number"]})

    assert (operation.done, read["state"], read["done"], read["reason"], late) == (
        150,
        "done",
        150,
        "mended",
        {"operation": begun["number"], "cancelled": False},
    )
    assert (again.status_code, again.json()["kind"]) == (409, "OperationTaken")


def test_a_request_that_a_page_elsewhere_could_send_begins_nothing(client, error, database):
    fail(error, 1)

    answers = [
        client.post(
            "/api/v1/operations/begin", content='{"operation": "retry"}', headers={"Content-Type": "text/plain"}
        ),
        client.post("/api/v1/operations/begin", data={"operation": "retry"}),
        client.post("/api/v1/operations/begin", json={"operation": "retry"}, headers={"Sec-Fetch-Site": "cross-site"}),
        client.post("/api/v1/operations/begin", content="[1]", headers={"Content-Type": "application/json"}),
        client.options(
            "/api/v1/operations/begin",
            headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"},
        ),
    ]

    assert [answer.status_code for answer in answers] == [415, 415, 403, 400, 405]
    assert "access-control-allow-origin" not in answers[-1].headers
    assert (error.peek(), list_operations(database)) == (1, [])


def test_a_preview_that_has_not_read_all_says_so_and_the_operation_applies_to_all(client, error, database, monkeypatch):
    monkeypatch.setattr(bulk, "PREVIEWED", 1000)
    fail(error, 1_050)

    page = client.get("/failed/all?operation=discard").text
    number = operation_of(
        client.submit("/failed/all?operation=discard", "/failed/all", **hidden(page), reason="test data")
    )

    assert ("At least <strong>1,000 messages" in page, "Discard all messages" in page, "up_to" in hidden(page)) == (
        True,
        True,
        False,
    )
    assert (ended(database, number).done, error.peek()) == (1_050, 0)
