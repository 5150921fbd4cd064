"""`@endpoint.every` and the section `schedules`: what is declared, and what is refused with the reason."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.schedules import senders_of, with_schedules
from rowpost.errors import SettingsError
from rowpost.settings.due_times import DueTimes
from rowpost.settings.environment import QueueSettings, ScheduleSettings, Settings, WorkerSettings, load_settings
from rowpost.testing import HandlerTest
from rowpost.transport.schedules import message_id
from rowpost.wire.message_types import message_type
from tests.support.orders import Order


@message_type("Shop.Told", kind="event")
class Told:
    pass


@pytest.fixture
def reports():
    return Endpoint("Reports")


def test_a_schedule_has_the_names_of_its_endpoint_and_function_and_the_function_stays_as_it_is(reports):
    def nightly(due: datetime) -> Order:
        return Order(1)

    same = reports.every("0  2 * * *", zone="Europe/Berlin", missed="all", to="Billing")(nightly)

    (found,) = reports.schedules
    assert same is nightly
    assert (found.name, found.message, found.due, found.missed, found.to) == (
        "Reports.nightly", Order, DueTimes("0 2 * * *", zone="Europe/Berlin"), "all", "Billing",
    )  # fmt: skip


def test_a_schedule_may_have_a_name_of_its_own_an_interval_and_no_message(reports):
    @reports.every(timedelta(minutes=5), name="often")
    def whatever(due: datetime) -> Order | None:
        return None

    assert [(each.name, each.due.interval, each.missed) for each in reports.schedules] == [
        ("often", timedelta(minutes=5), "once")
    ]


def takes_two(due, more) -> Order: ...


async def waits(due) -> Order: ...


def yields(due) -> Order:
    yield


def says_nothing(due): ...


def tells(due) -> Told: ...


def untyped(due) -> dict: ...


def makes(due) -> Order: ...


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (takes_two, "more"),
        (waits, "async"),
        (yields, "generator"),
        (says_nothing, "does not say which message it makes"),
        (tells, "event"),
        (untyped, "dict"),
    ],
)
def test_a_function_that_could_make_no_message_is_refused(reports, function, said):
    with pytest.raises(SettingsError, match=said):
        reports.every("0 2 * * *")(function)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"due": "0 2 * *"}, "A schedule of Reports: .*five fields"),
        ({"due": 5}, "neither a cron expression nor a timedelta"),
        ({"due": timedelta(0)}, "1 second to 100 years"),
        ({"due": "0 2 * * *", "zone": "Berlin"}, "no time zone 'Berlin'"),
        ({"due": "0 2 * * *", "missed": "twice"}, "missed='twice'"),
        ({"due": "0 2 * * *", "name": "x" * 151}, "more than 150 characters"),
    ],
)
def test_options_that_cannot_be_are_refused(reports, options, said):
    with pytest.raises(SettingsError, match=said):
        reports.every(**options)(makes)


def test_two_schedules_of_one_name_are_refused(reports):
    reports.every("0 2 * * *")(makes)

    with pytest.raises(SettingsError, match=r"two schedules named 'Reports\.makes'"):
        reports.every("0 3 * * *")(makes)


def test_a_send_only_endpoint_has_no_schedules():
    with pytest.raises(SettingsError, match="send-only"):
        Endpoint("Web", send_only=True).every("0 2 * * *")


# ------------------------------------------------------------------ in a test
def test_a_test_makes_the_message_of_a_due_time_and_handles_it(reports):
    handled = []

    @reports.every("0 2 * * *", to="Billing")
    def nightly(due: datetime) -> Order:
        return Order(due.day)

    @reports.handles(Order)
    def handle(message: Order, context) -> None:
        handled.append((message, context.headers["rowpost.Schedule"]))

    due = datetime(2026, 3, 29, 2, tzinfo=UTC)
    with HandlerTest(reports) as test:
        message = test.tick(nightly, due)
        sent = test.all_sent[0]
        test.handle(message, sent.headers)

    assert (message, sent.to, sent.headers["NServiceBus.MessageId"]) == (
        Order(29), "Billing", message_id("Reports.nightly", due),
    )  # fmt: skip
    assert handled == [(Order(29), "Reports.nightly")]


def test_a_test_sees_that_a_function_made_no_message_and_which_function_is_no_schedule(reports):
    @reports.every("0 2 * * *")
    def never(due: datetime) -> Order | None:
        return None

    with HandlerTest(reports) as test:
        assert test.tick(never, datetime(2026, 1, 1, tzinfo=UTC)) is None
        with pytest.raises(SettingsError, match="makes is no schedule of Reports"):
            test.tick(makes, datetime(2026, 1, 1, tzinfo=UTC))


# ------------------------------------------------------------------ an environment
HOSTED = Endpoint("Hosted")
HOSTED.every("0 2 * * *", to="Billing")(makes)


def hosting(**more):
    worker = WorkerSettings(f"{__name__}:HOSTED")
    return replace(Settings(default_schema="app"), queues=(QueueSettings("Hosted@[app]", worker=worker),), **more)


def test_the_schedules_of_endpoints_are_those_of_the_environment_in_its_default_schema():
    (found,) = with_schedules(hosting()).schedules

    assert (found.name, found.queue, found.to, found.type, found.body) == (
        "Hosted.makes", "Hosted@[app]", "Billing@[app]", "Shop.Order", None,
    )  # fmt: skip


def test_a_name_that_code_and_file_declare_differently_is_refused():
    other = ScheduleSettings("Hosted.makes", "Hosted@[app]", "Hosted", "Shop.Order", DueTimes("0 4 * * *"), body="{}")

    with pytest.raises(SettingsError, match=r"'Hosted\.makes' .* declared twice"):
        with_schedules(hosting(schedules=(other,)))


def test_a_handler_that_cannot_be_imported_is_told_and_its_schedules_are_unknown():
    settings = replace(Settings(), queues=(QueueSettings("Sales", worker=WorkerSettings("nowhere:sales")),))
    unknown = []

    assert with_schedules(settings, unknown.append).schedules == ()
    assert len(unknown) == 1


def test_without_schedules_nothing_is_imported():
    settings = replace(
        Settings(), queues=(QueueSettings("Sales", worker=WorkerSettings("tests.support.dies_at_import:x")),)
    )

    assert senders_of(settings) == {}


def test_messages_are_sent_where_the_queue_has_a_worker():
    here = ScheduleSettings("here", "Hosted@[app]", "Billing", "Shop.Order", DueTimes("0 4 * * *"), body="{}")
    elsewhere = replace(here, name="elsewhere", queue="Billing@[app]")

    found = senders_of(with_schedules(hosting(schedules=(here, elsewhere))))

    assert {queue: sorted(senders) for queue, senders in found.items()} == {"Hosted@[app]": ["Hosted.makes", "here"]}


FILE = """
engine: postgresql
url: "postgresql://app@db01/shop"
queues:
  Sales: {worker: {handler: "shop:sales"}}
external: {Billing: {}}
schedules:
"""


def read(tmp_path, text):
    path = tmp_path / "production.yml"
    path.write_text(FILE + text, encoding="utf-8")
    return load_settings(path, offline=True).schedules


def test_a_file_declares_a_message_its_destination_and_when_it_is_due(tmp_path):
    cleaning, often = read(
        tmp_path,
        "  cleaning: {to: Billing, queue: Sales, type: Shop.Clean, body: {days: 30}, cron: 0 2 * * *, zone: Europe/Berlin, missed: skip}\n"
        "  often: {to: Sales, type: Shop.Count, interval: 90}\n",
    )

    assert cleaning == ScheduleSettings(
        "cleaning",
        "Sales",
        "Billing",
        "Shop.Clean",
        DueTimes("0 2 * * *", zone="Europe/Berlin"),
        "skip",
        '{"days": 30}',
    )
    assert often == ScheduleSettings(
        "often", "Sales", "Sales", "Shop.Count", DueTimes(interval=timedelta(seconds=90)), "once", "{}"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{type: T, cron: 0 2 * * *}", "schedules.x.to: missing"),
        ("{to: Sales, cron: 0 2 * * *}", "schedules.x.type: missing"),
        ("{to: Sales, type: T}", "either a cron expression or an interval"),
        ("{to: Sales, type: T, cron: 0 2 * *}", "five fields"),
        ("{to: Sales, type: T, interval: 0.5}", "schedules.x.interval: 0.5"),
        ("{to: Sales, type: T, cron: 0 2 * * *, missed: twice}", "is not one of skip, once, all"),
        ("{to: Sales, type: T, cron: 0 2 * * *, body: '{'}", "schedules.x.body: is not JSON"),
        ("{to: Sales, type: T, cron: 0 2 * * *, body: {day: 2026-01-01}}", "Put dates into quotes"),
        ("{to: Billing, type: T, cron: 0 2 * * *}", "which is external"),
        ("{to: Sales, type: T, crown: 0 2 * * *}", "did you mean cron"),
    ],
)
def test_what_a_file_cannot_declare_is_refused_with_its_key(tmp_path, text, said):
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, f"  x: {text}\n")

    assert said in str(caught.value)
