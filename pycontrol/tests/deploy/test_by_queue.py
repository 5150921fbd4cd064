"""apply by queue: a transaction for each queue, one lock over all of them, and a second apply that goes on after an error."""

import os
import subprocess
import sys
from dataclasses import replace
from threading import Event, Thread

import pytest

from rowpost.deploy import apply as deploy
from rowpost.deploy.apply import apply, difference
from rowpost.deploy.deployment import DeploymentTransaction
from rowpost.deploy.entries import DeclaredFeature
from rowpost.deploy.parts import outcome, parts_by_queue
from rowpost.deploy.plan import plan
from rowpost.deploy.runner import BatchError
from rowpost.deploy.scripts import Script
from rowpost.deploy.state import read_state
from rowpost.deploy.verify import verify
from rowpost.errors import DeployError, LockRefused
from rowpost.settings.environment import QueueSettings, SagaSettings
from tests.support.fork_server import FORK_SERVER

NAMES = ("Sales", "Billing", "Stock")
DEADLINE = 120  # seconds


def three(shop, **options):
    """A plan of three queues; an option such as `body_string` alters their tables."""
    return shop.plan(*(QueueSettings(name, **options) for name in NAMES))


def declaring(shop, *features, sagas=()):
    return plan(replace(shop.settings, features=features, sagas=sagas))


def limit_locks(shop, database):
    """Let statements of this connection wait for a lock for a fifth of a second."""
    statement = shop.spelt("SET lock_timeout = '200ms'", "SET LOCK_TIMEOUT 200;")
    database.driver_connection.execute(statement)


def hold(worker, queue):
    """Receive a message in a transaction that stays open, as a worker does while its handler runs."""
    worker.call("send_message", queue, headers="{}", body=b"held")
    worker.begin()
    assert len(worker.call("receive_messages", queue, count=1)) == 1


def applied_at(database):
    return {
        entry.script_name: entry.applied_at
        for entry in read_state(database).journal
        if entry.script_kind != "everytime"
    }


def test_the_result_is_that_of_one_transaction(shop, database):
    first = apply(database, shop.plan(), by_queue=True)
    second = apply(database, shop.plan(), by_queue=True)

    assert set(first.applied) == {c.name for c in difference(database, shop.plan()).changes if c.state != "everytime"}
    assert (second.applied, second.unchanged) == ((), len(first.applied))
    assert verify(database, shop.plan()) == []
    assert not database.in_transaction


def test_each_queue_is_committed_before_the_next_one_begins(shop, database, open_shop):
    other, seen = open_shop(), {}

    def look(number, total, name):
        if name in ("queue Billing", "queue Stock"):
            seen[name] = [row.queue_name for row in other.call("list_queues")]

    apply(database, three(shop), look, by_queue=True)

    assert seen == {"queue Billing": ["Sales"], "queue Stock": ["Billing", "Sales"]}


def test_the_parts_are_the_shared_objects_then_each_queue_and_saga_then_what_goes(shop, database):
    saga = SagaSettings("Policy", "OrderId")
    fresh = parts_by_queue(difference(database, declaring(shop, sagas=(saga,))))
    apply(database, declaring(shop, "spark"))
    later = parts_by_queue(difference(database, declaring(shop)))

    assert [part.title for part in fresh] == ["shared objects", "queue Sales", "queue Billing", "saga Policy"]
    assert [part.title for part in later] == [
        "shared objects",
        "queue Sales",
        "queue Billing",
        "features that are no longer declared",
    ]
    assert {entry.script_name.partition(".sql:")[2] for entry in later[1].dropped} == {"Sales"}
    assert {entry.script_name.partition(".sql:")[2] for entry in later[3].dropped} == {""}


def test_a_lock_timeout_names_the_queue_and_what_is_left_and_the_next_apply_does_only_that(shop, database, open_shop):
    apply(database, three(shop))
    worker, wanted = open_shop(), three(shop, body_string=True)
    hold(worker, "Stock")
    limit_locks(shop, database)

    with pytest.raises(DeployError) as caught:
        apply(database, wanted, by_queue=True)
    worker.rollback()
    before = applied_at(database)
    result = apply(open_shop(), wanted, by_queue=True)

    said = str(caught.value)
    assert said.startswith("tables/queue/create.sql:Stock: batch ")
    assert "Committed before: shared objects, queue Sales, queue Billing. Left: queue Stock. " in said
    assert "run rowpost apply --by-queue again" in said
    assert result.applied == ("queue Stock", "tables/queue/create.sql:Stock", "tables/queue/create_delayed.sql:Stock")
    again = {name for name, when in applied_at(database).items() if when != before[name]}
    assert again == {"tables/queue/create.sql:Stock", "tables/queue/create_delayed.sql:Stock"}
    assert verify(database, wanted) == []


def test_workers_of_other_queues_go_on_while_a_deployment_waits_for_one_queue(shop, database, open_shop):
    apply(database, three(shop))
    worker, other, wanted = open_shop(), open_shop(), three(shop, body_string=True)
    hold(worker, "Stock")
    limit_locks(shop, other)
    reached, results = Event(), []

    def tell(number, total, name):
        if name == "tables/queue/create.sql:Stock":
            reached.set()

    deploying = Thread(target=lambda: results.append(apply(database, wanted, tell, by_queue=True)))
    deploying.start()
    try:
        assert reached.wait(DEADLINE)
        bodies = []
        for queue in ("Sales", "Billing"):
            other.call("send_message", queue, headers="{}", body=b"meanwhile")
            bodies += [bytes(row[-1]) for row in other.call("receive_messages", queue, count=1)]
    finally:
        worker.commit()
        deploying.join(DEADLINE)

    assert bodies == [b"meanwhile", b"meanwhile"]
    assert "tables/queue/create.sql:Stock" in results[0].applied
    assert verify(other, wanted) == []


KILLED = (
    "import sys\n"
    "from rowpost.database.connection import connect_url\n"
    "from rowpost.deploy.apply import apply\n"
    "from rowpost.deploy.plan import plan\n"
    "from rowpost.settings.environment import QueueSettings, Settings\n"
    "from tests.support import babelfish\n"
    "babelfish.install()\n"
    "engine, url, schema = sys.argv[1:]\n"
    "queues = tuple(map(QueueSettings, ('Sales', 'Billing', 'Stock')))\n"
    "def stop(number, total, name):\n"
    "    if name == 'queue Billing':\n"
    "        print('between', flush=True)\n"
    "        sys.stdin.read()\n"
    "settings = Settings(environment='shop', engine=engine, url=url, default_schema=schema, queues=queues)\n"
    "apply(connect_url(engine, url), plan(settings), stop, by_queue=True)\n"
)


def test_after_a_kill_between_two_queues_the_next_apply_goes_on_with_the_second(shop, database):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = (shop.engine, shop.settings.url, shop.settings.default_schema)
    with FORK_SERVER.start(
        ["-c", KILLED, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout.readline() == "between\n"
        process.kill()
    before = applied_at(database)

    result = apply(database, three(shop), by_queue=True)

    of_shared = {"", "SubscriptionRouting", *shop.spelt("public", "").split()}
    assert {name.partition(".sql:")[2] for name in before} == {*of_shared, "Sales"}
    assert {name.partition(".sql:")[2] or name for name in result.applied} == {
        "queue Billing",
        "Billing",
        "queue Stock",
        "Stock",
    }
    assert before.items() <= applied_at(database).items()
    assert verify(database, three(shop)) == []


@pytest.mark.parametrize("by_queue", [False, True])
def test_no_other_deployment_gets_in_between_two_transactions(shop, open_shop, folder, edit, monkeypatch, by_queue):
    if shop.engine == "sqlserver":
        edit("lock.sql" if by_queue else "begin.sql", "@LockTimeout = -1", "@LockTimeout = 0")
    first, second, refused = open_shop(), open_shop(), []

    def between(parts, done):
        if shop.engine == "postgresql":
            limit_locks(shop, second)
        assert not first.in_transaction
        with pytest.raises(LockRefused) as caught:
            apply(second, shop.plan(folder=folder), by_queue=by_queue)
        refused.append(caught.value.code)
        return outcome(parts, done)

    with monkeypatch.context() as patch:
        patch.setattr(deploy, "outcome", between)
        apply(first, shop.plan(), by_queue=True)

    assert refused == [12, 12]
    assert (
        apply(second, shop.plan(), by_queue=by_queue).applied == ()
    )  # the lock is free again; another test's deployment may be waited for


def test_a_feature_that_goes_is_gone_after_an_interruption_and_a_second_apply(shop, database):
    apply(database, declaring(shop, "spark"))

    def stop(number, total, name):
        if name == "tables/queue/grants.sql:Billing":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply(database, declaring(shop), stop, by_queue=True)
    recorded = read_state(database)
    result = apply(database, declaring(shop), by_queue=True)

    assert ("shop", DeclaredFeature("spark")) in recorded.declared
    assert not [entry for entry in recorded.journal if entry.script_name.endswith("describe_stream.sql:Sales")]
    assert "procedures/stream/describe_stream.sql:Billing" in result.dropped
    assert result.kept == ()
    assert ("shop", DeclaredFeature("spark")) not in read_state(database).declared
    assert verify(database, declaring(shop)) == []


class FullOfLocks:
    """Runs no batch: the server has no room for more locks."""

    def run(self, batch, bare):
        raise BatchError(1, 'out of shared memory. You might need to increase "max_locks_per_transaction".')


def test_a_transaction_with_too_many_locks_is_advised_to_be_divided():
    class Database:
        engine = "postgresql"

    with pytest.raises(DeployError, match=r"Nothing was changed\. With `rowpost apply --by-queue`, each queue has"):
        DeploymentTransaction(Database(), FullOfLocks()).run_script(Script("tables/queue/table.sql:Sales", "SELECT 1;"))
