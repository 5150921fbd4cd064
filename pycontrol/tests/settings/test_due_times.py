"""The due times of schedules: intervals, cron expressions, time zones and changes of the clock."""

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from rowpost.errors import InvalidSchedule
from rowpost.settings.due_times import DueTimes


def at(text):
    return datetime.fromisoformat(f"{text}+00:00")


def ticks(due, after, count):
    return [f"{each:%d %H:%M}" for each in islice(due.following(at(after)), count)]


def berlin(cron):
    return DueTimes(cron, zone="Europe/Berlin")


def test_a_local_time_is_due_at_its_moment_in_winter_and_in_summer():
    nightly = berlin("0 2 * * *")

    assert ticks(nightly, "2026-01-09T12:00", 1) == ["10 01:00"]
    assert ticks(nightly, "2026-07-09T12:00", 1) == ["10 00:00"]


@pytest.mark.parametrize("cron", ["30 2 * * *", "0,30 2 * * *", "15 2 29 3 *"])
@pytest.mark.promise("changes-of-the-clock")
def test_a_local_time_that_is_skipped_is_due_once_at_the_next_valid_moment(cron):
    due = berlin(cron)

    assert due.first(at("2026-03-28T12:00"), at("2026-03-29T12:00"), 9) == (at("2026-03-29T01:00"),)
    assert due.first(at("2026-03-29T00:59"), at("2026-03-29T12:00"), 9) == (at("2026-03-29T01:00"),)


def test_a_skipped_time_and_the_one_after_it_are_both_due():
    assert ticks(berlin("30 2,3 * * *"), "2026-03-29T00:00", 3) == ["29 01:00", "29 01:30", "30 00:30"]


def test_a_skipped_time_that_falls_on_another_one_is_due_once():
    assert ticks(berlin("0 2,3 * * *"), "2026-03-29T00:00", 2) == ["29 01:00", "30 00:00"]


@pytest.mark.promise("changes-of-the-clock")
def test_a_local_time_that_occurs_twice_is_due_the_first_time():
    assert ticks(berlin("30 2 * * *"), "2026-10-24T12:00", 2) == ["25 00:30", "26 01:30"]


def test_a_local_time_that_occurs_twice_is_not_due_again_from_within_its_second_hour():
    assert ticks(berlin("30 2 * * *"), "2026-10-25T01:10", 1) == ["26 01:30"]


def test_an_hourly_schedule_follows_the_time_that_passes_in_both_directions():
    hourly = berlin("0 * * * *")

    assert ticks(hourly, "2026-03-28T23:30", 3) == ["29 00:00", "29 01:00", "29 02:00"]
    assert ticks(hourly, "2026-10-24T23:30", 3) == ["25 00:00", "25 01:00", "25 02:00"]


def test_an_interval_is_a_multiple_since_1970_whenever_it_was_stored():
    due = DueTimes(interval=timedelta(hours=6))

    assert ticks(due, "2026-01-01T05:59", 2) == ["01 06:00", "01 12:00"]
    assert due.after(at("2026-01-01T06:00")) == at("2026-01-01T12:00")


EVERY = [
    *map(berlin, ["*/5 * * * *", "30 2 * * *", "0,30 2 * * *", "0 2,3 * * *", "0 0 * * MON", "0 12 29 2 *"]),
    DueTimes("30 1 * * *", zone="Australia/Lord_Howe"),
    DueTimes("0 0 * * *", zone="Africa/Cairo"),
    DueTimes(interval=timedelta(minutes=7)),
]


@pytest.mark.parametrize("due", EVERY, ids=lambda due: due.text)
@pytest.mark.parametrize("day", ["2026-03-28T20:00", "2026-10-24T20:00", "2026-04-04T12:00", "2026-10-03T12:00"])
def test_the_latest_tick_is_the_last_one_of_those_that_follow_one_another(due, day):
    start = at(day)
    all_of_it = due.first(start, start + timedelta(days=2), 10_000)

    for minutes in range(0, 2 * 24 * 60, 47):
        until = start + timedelta(minutes=minutes)
        passed = [each for each in all_of_it if each <= until]
        assert due.latest(start, until) == (passed[-1] if passed else None)
        assert due.after(until) == next(each for each in due.following(start) if each > until)


def test_the_latest_tick_of_a_long_time_is_found():
    assert berlin("0 12 29 2 *").latest(at("2000-01-01T00:00"), at("2027-01-01T00:00")) == at("2024-02-29T11:00")
    assert DueTimes("* * * * *").latest(at("1990-01-01T00:00"), at("2027-01-01T00:00")) == at("2027-01-01T00:00")


def test_no_tick_is_the_latest_if_none_is_due():
    assert berlin("0 12 29 2 *").latest(at("2025-01-01T00:00"), at("2027-01-01T00:00")) is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "Give one of the two"),
        ({"cron": "0 2 * * *", "interval": timedelta(hours=1)}, "Give one of the two"),
        ({"cron": "0 2 * *"}, "five fields"),
        ({"cron": "0 0 2 * * *"}, "five fields"),
        ({"cron": "61 2 * * *"}, "Bad minute"),
        ({"cron": "0 0 31 2 *"}, "cannot be read"),
        ({"cron": "0 2 * * *", "zone": "Europe/Nowhere"}, "no time zone 'Europe/Nowhere'"),
        ({"cron": "0 2 * * *", "zone": "../etc/passwd"}, "no time zone"),
        ({"interval": timedelta(milliseconds=999)}, "1 second to 100 years"),
        ({"interval": timedelta(seconds=1, microseconds=1)}, "whole milliseconds"),
        ({"interval": timedelta(hours=1), "zone": "Europe/Berlin"}, "An interval has no time zone"),
    ],
)
def test_due_times_that_cannot_be_are_refused_with_the_reason(wrong, said):
    with pytest.raises(InvalidSchedule, match=said):
        DueTimes(**wrong)


def test_a_moment_with_a_fraction_of_a_second_is_before_the_next_one():
    assert berlin("0 2 * * *").after(datetime(2026, 1, 9, 0, 59, 59, 999_000, UTC)) == at("2026-01-09T01:00")
