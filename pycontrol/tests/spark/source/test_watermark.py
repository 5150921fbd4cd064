"""The watermark against random histories of writers: it never passes a row version that may still appear.

The writers are assigned row versions, commit, roll back and prepare in any order.
"""

import json
import random

from rowpost.archive.source.watermark import Poll, Watermark


def poll(last, writers, name=str):
    return Poll(last, frozenset(name(each) for each in writers), None if writers else last)


class History:
    """Writers that begin, are assigned row versions and end, as a server reports them."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.last = 0
        self.open: dict[str, list[int]] = {}
        self.names = 0

    def step(self):
        choice = self.random.random()
        if choice < 0.35 or not self.open:
            self.names += 1
            self.open[f"w{self.names}"] = []
        elif choice < 0.75:
            writer = self.random.choice(list(self.open))
            self.last += 1
            self.open[writer].append(self.last)
        elif choice < 0.8:  # preparing a transaction changes its identifier
            writer = self.random.choice(list(self.open))
            self.names += 1
            self.open[f"-1/{self.names}"] = self.open.pop(writer)
        else:
            self.open.pop(self.random.choice(list(self.open)))

    @property
    def safe(self):
        """The row version below the lowest one that an open writer holds."""
        return min((held for writer in self.open.values() for held in writer), default=self.last + 1) - 1


def poll_with_a_pause(history):
    """Read the row version first and the writers second; other writers continue between the two."""
    last = history.last
    for _ in range(history.random.randrange(4)):
        history.step()
    return poll(last, history.open)


def test_the_watermark_never_passes_a_row_version_that_may_still_appear():
    for seed in range(60):
        history, watermark = History(seed), Watermark()
        for _ in range(400):
            history.step()
            if history.random.random() < 0.4:
                polled = poll_with_a_pause(history)
                assert watermark.advance(polled) <= history.safe, seed


def test_the_watermark_reaches_everything_when_the_writers_have_ended():
    watermark = Watermark()

    reached = [
        watermark.advance(poll(10, "a")),
        watermark.advance(poll(20, "b")),
        watermark.advance(poll(30, "bc")),
        watermark.advance(poll(40, "d")),
    ]

    assert reached == [0, 10, 10, 30]
    assert watermark.advance(poll(41, "")) == 41


def test_a_prepared_transaction_that_no_poll_contains_holds_the_watermark():
    watermark = Watermark()
    watermark.advance(poll(10, ["3/7"]))

    assert watermark.advance(poll(12, ["-1/99"])) == 0
    assert watermark.advance(poll(13, ["4/1"])) == 12


def test_a_server_that_has_lost_row_versions_in_a_failover_assigns_them_again_and_nothing_is_skipped():
    watermark = Watermark()
    watermark.advance(poll(10, "a"))
    watermark.advance(poll(20, ""))
    watermark.advance(poll(30, "b"))

    assert watermark.advance(poll(15, "c")) == 0  # neither 20 nor 30, which other messages will get
    assert watermark.advance(poll(16, "d")) == 15


def test_a_poll_whose_writers_are_among_those_of_a_later_one_is_kept_and_the_opposite_is_not():
    watermark = Watermark()
    for last, writers in ((10, "ab"), (20, "a"), (30, "ac"), (40, "ad")):
        watermark.advance(poll(last, writers))

    assert [last for last, _ in watermark.notes()] == [20, 30, 40]


def test_runs_that_end_and_hand_on_their_notes_never_pass_what_may_still_appear():
    for seed in range(30):
        run_and_hand_on(seed)


def run_and_hand_on(seed):
    history, offset = History(seed), {"row_version": 0, "polls": []}

    for _ in range(60):
        for _ in range(history.random.randrange(12)):
            history.step()
        watermark = Watermark()
        watermark.restore(offset["row_version"], json.loads(json.dumps(offset["polls"])))
        for _ in range(history.random.randrange(1, 6)):
            reached = watermark.advance(poll_with_a_pause(history))
            assert reached <= history.safe
        offset = {"row_version": reached, "polls": watermark.notes()}
        assert len(offset["polls"]) <= 10


def test_a_run_gets_on_beside_a_long_transaction_by_what_an_earlier_run_has_noted():
    first, second = Watermark(), Watermark()
    first.advance(poll(1500, ["nightly job"]))

    second.restore(0, first.notes())

    assert second.advance(poll(4000, ["the next job"])) == 1500


def test_of_many_notes_the_oldest_and_the_newest_are_kept():
    watermark = Watermark()
    for number in range(1, 101):
        watermark.advance(poll(number, ["long", f"w{number}"]))

    kept = [last for last, _ in watermark.notes()]

    assert (kept[0], kept[-1], len(kept)) == (1, 100, 10)


def test_writers_are_read_as_engines_name_them():
    assert Poll.of(5, None, '["3/7", "4/2"]').writers == frozenset({"3/7", "4/2"})
    assert Poll.of(5, None, '[{"writer": "1234"}]').writers == frozenset({"1234"})
