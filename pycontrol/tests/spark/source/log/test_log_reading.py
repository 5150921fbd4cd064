"""When a reader of the log knows that it has received everything: at the server's position, or when the server has no more that is durable."""

import struct

import pytest

from rowpost.database.dialects.replication import Received
from rowpost.errors import DatabaseUnavailable
from rowpost.spark.archive.schemas import MESSAGE
from rowpost.spark.source.log_ahead import LookAhead
from rowpost.spark.source.log_reading import read_rows, scan
from rowpost.spark.source.queue_stream import check_schema

BEGIN = b"B" + struct.pack("!QqI", 100, 0, 7)
COMMIT = b"C\0" + struct.pack("!QQq", 100, 110, 0)
INSERT = b"I" + struct.pack("!I", 1) + b"N" + struct.pack("!H", 0)


class Script:
    """A stream that returns what it was given: messages, positions, and None for a silence."""

    def __init__(self, *given):
        self.given, self.asked = list(given), 0

    def receive(self, timeout_s):
        got = self.given.pop(0)
        return got if got is None else Received(None, got) if isinstance(got, int) else Received(got)

    def ask_for_position(self):
        self.asked += 1


def scanned(script, upto):
    ahead = LookAhead()
    scan(script, ahead, upto, most=1000, enough=1000, most_bytes=1 << 30)
    return ahead.messages, ahead.scanned, script.asked


def test_a_scan_ends_when_the_server_reports_the_wanted_position():
    assert scanned(Script(50, BEGIN, INSERT, INSERT, COMMIT, 110, 120), 120) == (2, 120, 0)


def test_reports_that_nobody_asked_for_do_not_end_a_scan_although_they_repeat_a_position():
    """The server sends them while it sends a transaction, with the position before it."""
    assert scanned(Script(90, 90, 90, 90, 90, BEGIN, INSERT, 90, 90, COMMIT, 120), 120) == (1, 120, 0)


def test_a_server_that_is_silent_is_asked_once_until_it_answers():
    assert scanned(Script(None, None, None, BEGIN, INSERT, COMMIT, 120), 120) == (1, 120, 1)


def test_a_server_that_reports_the_same_position_when_it_is_asked_has_no_more():
    assert scanned(Script(BEGIN, INSERT, COMMIT, 118, None, 118, None, 118, None, 118), 120) == (1, 118, 3)


def test_a_message_between_the_reports_means_that_there_is_more():
    assert scanned(Script(90, None, 90, None, 90, BEGIN, None, 90, COMMIT, None, 115, None, 120), 120) == (0, 120, 5)


def test_a_scan_stops_at_the_end_of_a_transaction_when_enough_is_known():
    ahead = LookAhead()
    scan(Script(BEGIN, INSERT, INSERT, COMMIT), ahead, 1000, most=2, enough=1, most_bytes=1 << 30)

    assert (ahead.messages, ahead.scanned) == (2, 110)


def test_a_batch_whose_end_the_server_does_not_have_is_an_error():
    stream = Script(90, None, 90, None, 90, None, 90)

    with pytest.raises(DatabaseUnavailable, match="log ends at 0/5A, below the end of the planned batch"):
        list(read_rows(stream, 0, 120, {1: "q"}, check_schema(MESSAGE), 1000))
