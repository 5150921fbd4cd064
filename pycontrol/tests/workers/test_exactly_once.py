"""Each message is handled once by many workers and several supervisors, while workers are killed at random."""

import os
import random
import signal

import pytest

from rowpost.workers import events
from tests.support.workers import Running


@pytest.fixture
def many(target):
    """How many messages: fewer where receivers wait for one another."""
    return 1_000 if target.babelfish else 20_000


def alive(supervisor):
    """Workers that have started and not ended, as far as was told."""
    started = {event.pid for event in supervisor.seen(events.WorkerStarted)}
    return sorted(started - {event.pid for event in supervisor.seen(events.WorkerDied | events.WorkerStopped)})


@pytest.mark.promise("each-message-once")
def test_four_workers_handle_20000_messages_once_each_while_workers_are_killed_at_random(shop, many):
    shop.send(many)
    dice, kills = random.Random(2026), 25

    with shop.run(limit=4) as supervisor:
        handled = lambda: supervisor.supervisor.snapshot().queue(shop.name).handled  # noqa: E731
        for kill in range(kills):
            supervisor.until(lambda kill=kill: handled() >= (kill + 1) * many // 40, "some progress", deadline=60)
            # those that were killed come back with a delay: for a moment there may be none
            victims = supervisor.until(lambda: alive(supervisor), "a worker that lives")
            os.kill(dice.choice(victims), signal.SIGKILL)
            supervisor.until(lambda kill=kill: len(supervisor.seen(events.WorkerDied)) > kill, "the death is noticed")
        supervisor.until(lambda: shop.handled() == many, "all are handled", deadline=60)
        supervisor.idle()

    assert len(supervisor.seen(events.WorkerDied)) == kills
    assert (shop.handled(), shop.handled_twice(), shop.depth(), shop.errors()) == (many, 0, 0, [])


@pytest.mark.parametrize("strategy", ["adaptive", "fixed", "peek"])
@pytest.mark.promise("each-message-once")
def test_every_strategy_handles_each_message_once(shop, many, strategy):
    count = many // 10
    shop.send(count)

    with shop.run(limit=4, strategy=strategy) as supervisor:
        supervisor.until(lambda: shop.handled() == count, "all are handled", deadline=60)

    assert (shop.handled(), shop.handled_twice(), shop.depth()) == (count, 0, 0)


@pytest.mark.promise("instances-share-a-queue")
def test_two_supervisors_share_a_queue_and_handle_each_message_once(shop, many):
    count = many // 10
    settings = shop.settings("slow_then_note", limit=2)

    with Running(settings) as first, Running(settings) as second:
        shop.send(count)
        first.until(lambda: shop.handled() == count, "all are handled", deadline=60)
        first.idle()
        second.idle()
        shares = [one.supervisor.snapshot().queue(shop.name).handled for one in (first, second)]

    assert sum(shares) == count
    assert min(shares) > 0
    assert shop.handled_twice() == 0


def test_messages_that_arrive_while_workers_come_and_go_are_all_handled_once(shop, many):
    bursts = 8

    with shop.run(limit=3, idle_timeout=0.05) as supervisor:
        for burst in range(1, bursts + 1):
            shop.send(many // 100)
            supervisor.until(lambda burst=burst: shop.handled() == burst * (many // 100), "the burst is handled")
            supervisor.until(lambda: supervisor.workers(shop.name) == 1, "one worker at rest")

    assert shop.handled_twice() == 0
    assert supervisor.seen(events.WorkerDied) == []


def test_failing_and_succeeding_messages_are_each_accounted_for_once(shop):
    for number in range(300):
        shop.queue.send(b"bad %d" % number if number % 10 == 0 else b"good %d" % number)

    with shop.run("fail_bad", limit=4, attempts=2) as supervisor:
        supervisor.until(lambda: shop.handled() == 270 and len(shop.errors()) == 30, "all are accounted for")
        supervisor.idle()

    assert shop.handled_twice() == 0
    assert len({message.body for message in shop.errors()}) == 30
    assert shop.depth() == 0
