"""The digest by which a job that runs again is compared with what it sent."""

from uuid import UUID

import pytest

from rowpost.spark.source.job import MessageTally, same_messages, total

ONE = (str(UUID(int=1)), "{}", b"x")


def tally(*messages):
    found = MessageTally()
    for message in messages:
        found.add(*message)
    return found


def same(one, other):
    return same_messages((one.messages, one.digest), (other.messages, other.digest))


@pytest.mark.parametrize(
    "other",
    [
        (str(UUID(int=2)), "{}", b"x"),  # the first 16 characters are the same
        (None, "{}", b"x"),
        (ONE[0], "{}x", b""),  # the same bytes in other columns
        (ONE[0] + "{", "}", b"x"),
        (ONE[0], "{}", None),
        (ONE[0], "{}", b""),
    ],
)
def test_a_message_with_another_id_header_or_body_is_another(other):
    assert not same(tally(ONE), tally(other))


def test_a_null_id_or_body_differs_from_an_empty_one():
    assert not same(tally((None, "", None)), tally(("", "", None)))
    assert not same(tally((None, "", None)), tally((None, "", b"")))


def test_messages_that_are_there_twice_count_twice():
    assert not same(tally(ONE), tally(ONE, ONE))
    assert not same(tally(ONE, ONE), tally(ONE, (ONE[0], "{}", b"y")))


def test_order_changes_the_digest_and_does_not_make_other_messages():
    two = (str(UUID(int=2)), "{}", b"y")
    one_way, other_way = tally(ONE, two), tally(two, ONE)

    assert one_way.digest != other_way.digest
    assert same(one_way, other_way)
    assert same_messages((2, total([tally(ONE).digest, tally(two).digest])), (2, one_way.digest))


def test_what_was_never_settled_is_not_the_same():
    assert not same_messages((None, None), (0, MessageTally().digest))
