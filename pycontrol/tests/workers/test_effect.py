"""How many worker processes bring throughput."""

import pytest

from rowpost.workers.effect import AT_ONCE, HOLD_S, SETTLE_S, WINDOW_S, Effect
from tests.support.pool_history import History


class Machine:
    """Handles as many messages a second as `rate` says for a number of workers."""

    def __init__(self, effect, rate):
        self.effect, self.rate, self.now, self.handled = effect, rate, 0.0, 0.0

    def run(self, seconds, idle=False):
        """Return the numbers of workers in order, without repetitions."""
        seen = [self.effect.workers]
        end = self.now + seconds
        while self.now < end:
            self.now += 0.05
            self.handled += 0 if idle else 0.05 * self.rate(self.effect.workers)
            self.effect = self.effect.after(self.now, 0 if idle else self.effect.workers, int(self.handled))
            if seen[-1] != self.effect.workers:
                seen.append(self.effect.workers)
        return seen


@pytest.mark.promise("useful-workers")
def test_handlers_that_wait_get_all_workers():
    assert Machine(Effect(100), lambda workers: 50 * workers).run(10.0) == [8, 16, 32, 64, 100]


@pytest.mark.promise("useful-workers")
def test_workers_that_bring_nothing_are_taken_back():
    assert Machine(Effect(64), lambda workers: min(8000, 500 * workers)).run(10.0) == [8, 16, 32, 16]


def test_more_workers_are_tried_again_later():
    machine = Machine(Effect(32), lambda workers: 1000)
    first = machine.run(HOLD_S - 1.0)
    machine.rate = lambda workers: 100 * workers

    assert (first, machine.run(10.0)) == ([8, 16, 8], [8, 16, 32])


def test_the_last_step_to_the_limit_is_measured_too():
    assert Machine(Effect(12), lambda workers: 1000).run(10.0) == [8, 12, 8]


def test_messages_that_take_long_say_nothing_against_more_workers():
    assert Machine(Effect(64), lambda workers: 10).run(10.0) == [8, 16, 32, 64]


def test_a_queue_that_is_not_always_busy_keeps_its_number():
    assert Machine(Effect(64), lambda workers: 10_000).run(10.0, idle=True) == [8]


def test_a_small_limit_is_reached_at_once():
    effect = Effect(4)

    assert effect.workers == 4
    assert effect.after(1.0, 4, 100) is effect


@pytest.mark.promise("useful-workers")
def test_a_pool_starts_eight_processes_and_then_more_if_they_bring_more():
    history = History(limit=16)
    history.at(0.0)
    history.ready(1)
    history.peeks(1000, now=0.1)
    history.ready(*range(2, AT_ONCE + 1), now=0.1)
    before, now = len(history.processes), 0.2
    for now in (0.2, 0.2 + SETTLE_S, 0.3 + SETTLE_S + WINDOW_S):
        history.receives(1, 500, now=now, busy=True, handled=500)
    history.peeks(1000, now=now)

    assert (before, len(history.processes)) == (8, 16)


def test_a_pool_lets_processes_exit_that_brought_nothing():
    history = History(limit=16)
    history.at(0.0)
    history.ready(1)
    now = 0.1
    for count in (8, 16):
        history.peeks(1000, now=now)
        history.ready(*range(2 if count == 8 else 9, count + 1), now=now)
        for later in (0.1, 0.1 + SETTLE_S, 0.2 + SETTLE_S + WINDOW_S):
            history.receives(1, 500, now=now + later, busy=True, handled=500)
        now += 1.5

    assert len(history.pool.handles) == 16
    assert (
        sum(process.commands[-1:] != [] and "Exit" in repr(process.commands[-1]) for process in history.processes) == 8
    )
