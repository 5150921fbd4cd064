"""The dashboard in Chromium: each page and each operation, narrow and wide, by mouse and by keyboard, with and without JavaScript."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("playwright", reason="playwright is not installed: pip install 'rowpost[dev]'")

from rowpost.dashboard import app
from rowpost.dashboard.access import LoopbackAccess
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.operations.bulk import BulkOperation, FailedSelection
from rowpost.operations.log import Operator, find_operation, list_operations
from rowpost.settings.environment import QueueSettings
from rowpost.settings.saga import SagaSettings
from rowpost.transport.changes import FailureChange
from rowpost.transport.controls import list_controls
from rowpost.transport.error_queue import Filter
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage
from tests.support.dashboard import failed_headers, serving
from tests.support.pictures import QUEUES, SAGA, browser, chromium, fill, overflow, pages_of
from tests.support.workers import eventually

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium() is None, reason="Chromium is not installed: apt-get install chromium"),
]
WIDTHS = (400, 1600)
#: counts what moved on the page without an input
SHIFTS = "new PerformanceObserver(list => { window.shifts = (window.shifts || 0) + list.getEntries().filter(each => !each.hadRecentInput).length; }).observe({type: 'layout-shift'})"


@pytest.fixture(scope="module")
def site(target) -> Iterator[str]:
    settings = replace(
        target.settings, queues=tuple(QueueSettings(name) for name in QUEUES), sagas=(SagaSettings(SAGA, "OrderId"),)
    )
    with target.connect() as database:
        apply(database, plan(settings))
        fill(database)
    with serving(app(settings, access=LoopbackAccess())) as client:
        yield str(client.base_url).rstrip("/")


@pytest.fixture(scope="module")
def chrome():
    with browser() as started:
        yield started


def expected(message) -> bool:
    """Whether Chromium tells the status of a page that says what was wrong: of a queue that does not exist, or of a form."""
    return "status of 40" in message.text and "/static/" not in message.location["url"]


@pytest.fixture(params=WIDTHS)
def page(request, chrome):
    """A page whose errors, and whatever the policy blocked, fail the test."""
    page = chrome.new_page(viewport={"width": request.param, "height": 800})
    troubles: list[str] = []
    page.on(
        "console",
        lambda message: (
            troubles.append(message.text) if message.type in ("error", "warning") and not expected(message) else None
        ),
    )
    page.on("pageerror", lambda error: troubles.append(str(error)))
    yield page
    page.close()
    assert troubles == []


def test_each_page_fits_and_has_landmarks_labels_and_one_heading(site, page, database):
    for name, path in pages_of(database).items():
        page.goto(site + path)
        assert overflow(page) <= 0, name
        assert page.locator("h1").count() == 1, name
        assert page.locator("main, header.top, nav[aria-label], footer").count() == 4, name
        assert page.evaluate(
            "[...document.querySelectorAll('input:not([type=hidden]), textarea')].every(each => each.labels.length)"
        ), name
        assert page.evaluate(
            "[...document.querySelectorAll('button, a')].every(each => (each.textContent || each.ariaLabel || '').trim())"
        ), name


def test_the_keyboard_reaches_the_content_and_the_focus_is_visible(site, page):
    page.goto(site + "/")

    page.keyboard.press("Tab")
    skip = page.evaluate("document.activeElement.className")
    page.keyboard.press("Enter")
    at = page.evaluate("document.activeElement.id")
    page.keyboard.press("Tab")

    assert (skip, at) == ("skip", "main")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_a_message_is_retried_edited_and_discarded(site, page, database):
    errors, billing = Queue("error", database), Queue("Billing", database)
    failed, waiting = errors.peek(), billing.peek()
    rows = [message.row_version for message in errors.browse(3)]

    page.goto(f"{site}/failed/{rows[0]}")
    page.get_by_role("button", name="Retry in Billing").click()
    retried = page.get_by_role("status").first.inner_text()
    page.goto(f"{site}/failed/{rows[1]}")
    page.get_by_role("link", name="Edit and retry").click()
    page.get_by_label("Body").fill('{"OrderId": 5}')
    page.get_by_role("button", name="Send the edited copy").click()
    edited = page.get_by_role("status").first.inner_text()
    page.goto(f"{site}/failed/{rows[2]}")
    page.get_by_role("link", name="Discard").click()
    page.get_by_label("Why").fill("the order was cancelled")
    page.get_by_role("button", name="Discard the message").click()
    discarded = page.get_by_role("status").first.inner_text()

    assert [retried.split()[0], edited.split()[0], discarded.split()[0]] == ["Moved", "Sent", "Discarded"]
    assert (errors.peek(), billing.peek()) == (failed - 3, waiting + 2)
    assert billing.browse(1000)[-1].body == b'{"OrderId": 5}'


def test_a_cause_is_previewed_and_retried_whole_by_the_keyboard(site, page, database):
    before = Queue("error", database).peek()
    page.goto(site + "/failed")

    page.get_by_role("link", name="Retry all messages of this cause").last.focus()
    page.keyboard.press("Enter")
    page.get_by_label("Why").focus()
    page.keyboard.type("mended")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/operation/\d+"))
    eventually(
        lambda: page.wait_for_timeout(100) or page.locator("h1 .tag").inner_text() == "done", "the operation has ended"
    )

    assert Queue("error", database).peek() < before
    assert (list_operations(database)[0].name, list_operations(database)[0].reason, overflow(page)) == (
        "retry-all",
        "mended",
        0,
    )


def test_an_operation_shows_its_progress_without_a_jump_keeps_the_focus_and_is_cancelled(
    site, page, database, open_database
):
    Queue("error", database).send_many(
        OutgoingMessage(b"{}", failed_headers("browser", queue="Shipping")) for _ in range(350)
    )
    held, going = threading.Event(), threading.Event()
    operation = BulkOperation.begin(
        open_database(),
        Operator("test", "bob"),
        FailedSelection("error", Filter(exception="browser")),
        FailureChange("retry"),
    )

    def wait(counts):
        if counts.total is not None and counts.done in (100, 200):
            going.set()
            held.wait(30)
            held.clear()

    thread = threading.Thread(target=operation.run, args=(wait,))
    thread.start()
    going.wait(30)
    page.goto(f"{site}/operation/{operation.counts.number}")
    page.evaluate(SHIFTS)
    page.get_by_role("button", name="Cancel").focus()
    seen = page.locator("progress").get_attribute("value")
    held.set()
    eventually(
        lambda: page.wait_for_timeout(100) or page.locator("progress").get_attribute("value") == "200",
        "the progress is new",
    )
    focused = page.evaluate("document.activeElement.id")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("notice="))
    asked = page.get_by_role("button", name="Stopping …").is_disabled()
    shifts = page.evaluate("window.shifts || 0")
    held.set()
    thread.join(30)
    eventually(
        lambda: page.wait_for_timeout(100) or page.locator("h1 .tag").inner_text() == "cancelled",
        "the operation is cancelled",
    )

    assert (seen, focused, asked, shifts) == ("100", "next", True, 0)
    assert page.get_by_text("Cancelled by local").count() == 1
    assert page.get_by_role("button", name="Go on").is_visible()
    assert overflow(page) <= 0


def test_an_interrupted_operation_goes_on_in_the_browser(site, page, database):
    Queue("error", database).send_many(
        OutgoingMessage(b"{}", failed_headers("go on", queue="Shipping")) for _ in range(150)
    )
    operation = BulkOperation.begin(
        database, Operator("test"), FailedSelection("error", Filter(exception="go on")), FailureChange("retry")
    )
    operation.run(stop=lambda: "interrupted" if operation.counts.done else None)

    page.goto(site + "/operations")
    page.get_by_role("link", name=str(operation.counts.number), exact=True).click()
    left = page.get_by_text("50 messages are left").count()
    page.get_by_role("button", name="Go on").click()
    eventually(
        lambda: page.wait_for_timeout(100) or page.locator("h1 .tag").inner_text() == "done", "the operation has ended"
    )

    assert (left, find_operation(database, operation.counts.number).done) == (1, 150)


def test_a_queue_is_purged_after_its_name_was_typed(site, page, database):
    mail = Queue("Mail", database)
    mail.send(b"{}")

    page.goto(site + "/queue/Mail")
    page.get_by_role("link", name="Purge").click()
    page.get_by_label("Type the queue's name").fill("Nail")
    page.get_by_role("button", name="Delete all messages").click()
    refused, kept = page.get_by_role("alert").inner_text(), mail.peek()
    page.get_by_label("Type the queue's name").fill("Mail")
    page.get_by_role("button", name="Delete all messages").click()

    assert ("Nothing was deleted" in refused, kept) == (True, 1)
    assert mail.peek() == 0


def test_a_queue_is_paused_and_resumed(site, page, database):
    page.goto(site + "/queue/Stock")
    page.get_by_text("Pause or limit the workers").click()
    page.get_by_label("Reason").fill("stocktaking")
    page.get_by_role("button", name="Pause").click()
    shown = page.get_by_text("Operators have set: paused – stocktaking")
    shown.first.wait_for()
    paused = shown.count()
    page.goto(site + "/")
    listed = page.locator(".tag.held").all_inner_texts()
    page.goto(site + "/queue/Stock")
    page.get_by_text("Pause or limit the workers").click()
    page.get_by_role("button", name="Resume").click()

    assert (paused, "paused" in listed) == (1, True)
    assert page.get_by_text("Operators have set").count() == 0
    assert "Stock" not in [each.queue for each in list_controls(database)]


def test_figures_are_refreshed_and_the_focus_and_the_place_stay(site, page, database):
    page.goto(site + "/")
    link = page.get_by_role("link", name="Stock")
    link.focus()
    shown = page.locator("#live").inner_html()

    Queue("Stock", database).send(b"{}")
    eventually(lambda: page.wait_for_timeout(200) or page.locator("#live").inner_html() != shown, "the figures are new")

    assert page.evaluate("document.activeElement.getAttribute('href')") == "/queue/Stock"


def test_pages_work_without_javascript_and_in_the_dark(site, chrome, database):
    context = chrome.new_context(java_script_enabled=False, color_scheme="dark", viewport={"width": 400, "height": 800})
    page = context.new_page()
    page.goto(site + "/failed")
    page.get_by_role("link", name="Subscriptions").click()

    assert "OrderPlaced" in page.inner_text("main")
    context.close()
