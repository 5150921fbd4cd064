"""Workers that lease their messages: kills, stops and takeovers lose and duplicate nothing. Real processes."""

import os
import random
import signal
from dataclasses import replace

import pytest

from rowpost.endpoint.hosting import check_leases, with_needs
from rowpost.errors import SettingsError
from rowpost.settings.environment import QueueSettings
from rowpost.wire.message import OutgoingMessage
from rowpost.workers import events
from tests.support.workers import Shop, concurrent, eventually, running

HOLD, NOTE = ({"NServiceBus.EnclosedMessageTypes": f"Shop.{name}"} for name in ("Hold", "Note"))


@pytest.fixture
def shop(shop, target, make_queue, sql):
    """A shop whose queue has a table of leases."""
    return Shop(target, make_queue(lease=True), sql, make_queue, lease=True)


def pids(path):
    return [int(file.name.rpartition(".")[2]) for file in path.parent.glob(f"{path.name}.*")]


def leases(shop):
    return shop.queue.database.call("list_leases", shop.name, count=1000)


@pytest.mark.promise("lease-holds-nothing")
def test_a_long_handler_holds_neither_a_transaction_nor_a_connection(shop, target, tmp_path):
    if target.settings.engine != "postgresql":
        pytest.skip("reads PostgreSQL's view of activity")
    gate = tmp_path / "gate"
    shop.queue.send(str(gate).encode(), HOLD)
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE ?"
    oldest = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE ? AND"
        " xact_start < clock_timestamp() - interval '1 second'"
    )

    with shop.run("leased", limit=1) as supervisor:
        supervisor.until(lambda: running(gate) == 1, "the handler")
        supervisor.until(lambda: leases(shop)[0].progress_percent == 25, "the progress")
        supervisor.until(lambda: shop.sql.value(sessions, "rowpost worker%") <= 1, "only the renewals' connection")
        transactions = shop.sql.value(oldest, "rowpost worker%")
        waiting, (lease,) = shop.depth(), leases(shop)
        gate.touch()
        supervisor.until(lambda: shop.handled() == 1, "it is handled")

    assert (transactions, waiting, lease.progress_text) == (0, 0, "waits for the file")
    assert (leases(shop), shop.depth(), shop.errors()) == ([], 0, [])


def test_the_message_of_a_killed_worker_is_taken_over_and_counted_once(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.queue.send(str(gate).encode(), HOLD)

    with shop.run("leased", limit=2) as supervisor:
        supervisor.until(lambda: running(gate) == 1, "the handler")
        (victim,) = pids(gate)
        os.kill(victim, signal.SIGKILL)
        supervisor.until(lambda: running(gate) == 2, "another handler of the same message")
        gate.touch()
        supervisor.until(lambda: shop.handled() == 1, "it is handled")
        supervisor.idle()

    (failed,) = supervisor.seen(events.Failed)
    assert (failed.pid, failed.attempts) == (victim, 1)
    assert (shop.handled(), shop.depth(), shop.errors(), leases(shop)) == (1, 0, [], [])


def test_a_message_that_kills_its_worker_moves_to_the_error_queue(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.queue.send(str(gate).encode(), HOLD)

    with shop.run("leased_once", limit=1) as supervisor:
        supervisor.until(lambda: running(gate) == 1, "the handler")
        os.kill(*pids(gate), signal.SIGKILL)
        supervisor.until(lambda: supervisor.seen(events.MovedToError), "it is in the error queue")

    (error,) = shop.errors()
    assert error.headers["NServiceBus.ExceptionInfo.ExceptionType"] == "builtins.ChildProcessError"
    assert (shop.depth(), leases(shop)) == (0, [])


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="this system cannot stop a process")
@pytest.mark.promise("lost-lease-commits-nothing")
def test_a_stopped_worker_loses_its_lease_and_its_late_commit_is_refused(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.queue.send(str(gate).encode(), HOLD)

    with shop.run("leased", limit=2) as supervisor:
        supervisor.until(lambda: running(gate) == 1, "the handler")
        (stopped,) = pids(gate)
        os.kill(stopped, signal.SIGSTOP)
        try:
            supervisor.until(lambda: supervisor.seen(events.LeaseExpired), "its lease expires")
            supervisor.until(lambda: running(gate) == 2, "another handler of the same message")
            gate.touch()
            supervisor.until(lambda: shop.handled() == 1, "the other one commits")
        finally:
            os.kill(stopped, signal.SIGCONT)
        supervisor.until(
            lambda: [each for each in supervisor.seen(events.Logged) if "was lost" in str(each)], "the loss is said"
        )
        supervisor.idle()

    assert f"/{stopped}/" in supervisor.seen(events.LeaseExpired)[0].owner
    assert [each.attempts for each in supervisor.seen(events.Failed)] == [1]
    assert (shop.handled(), shop.handled_twice(), shop.depth(), shop.errors(), leases(shop)) == (1, 0, 0, [], [])


@concurrent
@pytest.mark.promise("lease-survives-kills")
def test_each_message_is_handled_once_while_workers_are_killed_at_random(shop):
    many, kills, dice = 1_500, 15, random.Random(2026)
    shop.queue.send_many(OutgoingMessage(b"%d" % number, NOTE) for number in range(many))

    with shop.run("leased", limit=4) as supervisor:
        for kill in range(kills):
            supervisor.until(lambda kill=kill: shop.handled() >= (kill + 1) * many // 30, "some progress", deadline=60)
            victims = supervisor.until(lambda: alive(supervisor), "a worker that lives")
            os.kill(dice.choice(victims), signal.SIGKILL)
            supervisor.until(lambda kill=kill: len(supervisor.seen(events.WorkerDied)) > kill, "the death is noticed")
        supervisor.until(lambda: shop.handled() == many, "all are handled", deadline=60)
        supervisor.idle()

    assert (shop.handled(), shop.handled_twice(), shop.depth(), shop.errors(), leases(shop)) == (many, 0, 0, [], [])


def alive(supervisor):
    started = {event.pid for event in supervisor.seen(events.WorkerStarted)}
    return sorted(started - {event.pid for event in supervisor.seen(events.WorkerDied | events.WorkerStopped)})


def test_a_handler_that_is_interrupted_gives_its_message_back_uncounted(shop, tmp_path):
    gate = tmp_path / "gate"
    shop.queue.send(str(gate).encode(), HOLD)

    with shop.run("leased", limit=1, stop_timeout=0.2) as supervisor:
        supervisor.until(lambda: running(gate) == 1, "the handler")
        supervisor.supervisor.stop()
        eventually(lambda: not supervisor.alive, "the supervisor has stopped")

    assert (shop.depth(), leases(shop), supervisor.seen(events.Failed)) == (1, [], [])


# ------------------------------------------------------------------ what the settings refuse
def test_a_queue_without_a_table_of_leases_is_refused_before_workers_start(shop):
    name = shop.make_queue().name
    settings = replace(shop.settings("leased"), queues=(shop.worked(name, "leased"),))

    with pytest.raises(SettingsError, match=rf"{name}: \{{lease: true\}}"):
        check_leases(settings, shop.queue.database)
    assert [queue.lease for queue in with_needs(settings).queues if queue.name == name] == [True]


@pytest.mark.parametrize("options", [{"exclusive": True}, {"batch": 20}])
def test_settings_that_contradict_a_lease_are_refused(shop, options):
    with pytest.raises(SettingsError, match="receive='lease'"):
        check_leases(shop.settings("leased", **options), shop.queue.database)


def test_settings_that_fit_are_accepted(shop):
    without = replace(shop.settings("note"), queues=(QueueSettings("Sales"),))

    for settings in (shop.settings("leased", batch="off"), without):
        assert check_leases(settings, shop.queue.database) is None
