"""What a supervisor finds wrong with its queues when it starts: a warning each, and work goes on."""

from dataclasses import replace
from functools import partial

from rowpost.settings.environment import QueueSettings, SupervisorSettings, WorkerSettings
from rowpost.workers import events
from rowpost.workers.tasks.group import TaskGroup
from rowpost.workers.tasks.startup_check import make_startup_check
from tests.support.workers import Running


def warnings(supervisor, queue):
    return [event.text for event in supervisor.seen(events.Warned, queue)]


def drop_index_on_expires(shop):
    if shop.target.settings.engine == "sqlserver":
        shop.sql.run(f"DROP INDEX Index_Expires ON {shop.sql.table(shop.name)}")
        return
    name = shop.sql.value(
        f"SELECT indexname FROM pg_indexes WHERE tablename = '{shop.name}' AND indexdef ILIKE '%(expires%'"
    )
    shop.sql.run(f'DROP INDEX "{name}"')


def test_a_missing_index_is_a_warning_with_its_remedy_and_messages_are_handled(shop):
    drop_index_on_expires(shop)
    shop.send(3)

    with shop.run() as supervisor:
        supervisor.until(lambda: warnings(supervisor, shop.name), "the warning")
        supervisor.until(lambda: shop.handled() == 3, "work goes on")
        found = warnings(supervisor, shop.name)

    assert len(found) == 1
    assert "expires_index_missing" in found[0]
    assert "Remedy: " in found[0] and ".." not in found[0]


def test_a_queue_that_is_as_it_should_be_causes_no_warning(shop):
    checked = []

    def recorded(*arguments):
        checked.append(make_startup_check(*arguments))
        return checked[0]

    shop.send(1)
    with Running(shop.settings(), tasks=partial(TaskGroup, tasks=(recorded,))) as supervisor:
        supervisor.until(lambda: shop.handled() == 1, "it is handled")
        supervisor.until(lambda: not checked[0]._thread.is_alive(), "the check has ended")

    assert supervisor.seen(events.Warned) == []


def test_a_queue_that_does_not_exist_is_told_by_its_peeks_and_the_others_are_checked(shop):
    drop_index_on_expires(shop)
    nowhere = QueueSettings("Nowhere", worker=WorkerSettings("tests.support.handlers:note", peek_delay=0.1))
    settings = shop.settings()

    with Running(replace(settings, queues=(nowhere, *settings.queues))) as supervisor:
        supervisor.until(lambda: warnings(supervisor, shop.name), "the warning")

    assert warnings(supervisor, "Nowhere") == []
    assert any("Nowhere" in event.error for event in supervisor.seen(events.Trouble, "Nowhere"))


def test_a_peek_counts_at_most_the_batch_size_of_the_settings(shop):
    shop.send(20, b"0")
    settings = replace(shop.settings("slow"), supervisor=SupervisorSettings(peek_batch_size=7, idle_timeout=0.3))

    with Running(settings) as supervisor:
        supervisor.until(lambda: supervisor.seen(events.Peeked), "a peek")

    assert supervisor.seen(events.Peeked)[0].count == 7
