"""Ranges of row versions that are cut by a sample of the messages. No Spark is started here."""

import random

from rowpost.archive.source.cuts import Sampled, divide


def messages_in(part, rows):
    return [each for each in rows if part.above < each.row_version <= part.upto]


def test_a_hole_in_the_middle_makes_no_empty_range():
    rows = [Sampled(number, 100, 1) for number in [*range(1, 501), *range(1_000_001, 1_000_501)]]

    ranges = divide(0, 1_000_500, 4, rows)

    assert [len(messages_in(part, rows)) for part in ranges] == [250] * 4


def test_large_bodies_are_in_ranges_with_fewer_messages():
    rows = [Sampled(number, 1_000_000 if number > 900 else 100, 1) for number in range(1, 1001)]

    ranges = divide(0, 1000, 4, rows)

    sizes = [sum(each.bytes for each in messages_in(part, rows)) for part in ranges]
    assert max(sizes) < 1.2 * min(sizes)


def test_few_measured_messages_divide_row_versions_evenly():
    assert [(part.above, part.upto) for part in divide(0, 1000, 2, [Sampled(1, 5, 1)])] == [(0, 500), (500, 1000)]


def test_a_range_with_too_many_messages_is_divided_further():
    rows = [Sampled(10 * number, 100, 10) for number in range(1, 101)]

    assert [sum(each.messages for each in messages_in(part, rows)) for part in divide(0, 1000, 2, rows, 100)] == [
        100
    ] * 10


def test_an_empty_range_has_no_parts():
    assert divide(5, 5, 4, []) == []


def test_the_ranges_are_the_whole_and_do_not_overlap():
    for seed in range(100):
        check_ranges(random.Random(seed))


def check_ranges(chance):
    sample = [
        Sampled(chance.randint(1, 10_000), chance.randint(0, 10**9), chance.randint(1, 50))
        for _ in range(chance.randint(0, 300))
    ]
    above, width, parts, max_messages = (
        chance.randint(0, 5000),
        chance.choice([0, 1, 7, 6000]),
        chance.randint(1, 9),
        chance.choice([None, 1, 1000]),
    )

    ranges = divide(above, above + width, parts, sample, max_messages)

    assert all(part.above < part.upto for part in ranges)
    assert [part.above for part in ranges[1:]] == [part.upto for part in ranges[:-1]]
    assert (ranges[0].above, ranges[-1].upto) == (above, above + width) if width else not ranges
    assert max_messages is not None or len(ranges) <= parts
