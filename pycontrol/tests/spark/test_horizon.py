"""The horizon against histories of writers that draw, commit and roll back in any order: never past one that may still come."""

import random

import pytest

from rowpost.spark.source.horizon import Horizon, Look


def look(last, writers, name=str):
    return Look(last, frozenset(name(each) for each in writers), None if writers else last)


class History:
    """Writers that begin, draw row versions and end, as a server would show them."""

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
        elif choice < 0.8:  # a prepared transaction bears another name from now on
            writer = self.random.choice(list(self.open))
            self.names += 1
            self.open[f"-1/{self.names}"] = self.open.pop(writer)
        else:
            self.open.pop(self.random.choice(list(self.open)))

    @property
    def safe(self):
        """All below the lowest that an open writer has drawn."""
        return min((drawn for writer in self.open.values() for drawn in writer), default=self.last + 1) - 1


def look_with_a_pause(history):
    """The row version first, then the writers; between the two the others go on."""
    last = history.last
    for _ in range(history.random.randrange(4)):
        history.step()
    return look(last, history.open)


@pytest.mark.parametrize("seed", range(60))
def test_the_horizon_never_passes_a_row_version_that_may_still_appear(seed):
    history, horizon = History(seed), Horizon()

    for _ in range(400):
        history.step()
        if history.random.random() < 0.4:
            seen = look_with_a_pause(history)
            assert horizon.see(seen) <= history.safe


def test_the_horizon_reaches_everything_when_the_writers_have_ended():
    horizon = Horizon()

    reached = [horizon.see(look(10, "a")), horizon.see(look(20, "b")), horizon.see(look(30, "bc")), horizon.see(look(40, "d"))]

    assert reached == [0, 10, 10, 30]
    assert horizon.see(look(41, "")) == 41


def test_a_prepared_transaction_that_no_note_knows_holds_the_horizon():
    horizon = Horizon()
    horizon.see(look(10, ["3/7"]))

    assert horizon.see(look(12, ["-1/99"])) == 0
    assert horizon.see(look(13, ["4/1"])) == 12


def test_the_horizon_never_goes_back():
    horizon = Horizon()
    horizon.see(look(10, ""))

    assert horizon.see(look(4, "")) == 10


def test_writers_are_read_as_engines_name_them():
    assert Look.of(5, None, '["3/7", "4/2"]').writers == frozenset({'"3/7"', '"4/2"'})
    assert Look.of(5, None, '[{"writer": 1234}]').writers == frozenset({'{"writer": 1234}'})
