"""Many workers and few saga instances: the result equals that of one worker, message by message.

ROWPOST_SAGA_RACE=20000 runs it with so many messages instead of a few hundred, and prints figures.
"""

import json
import os
import random
import time
from collections import Counter
from dataclasses import replace

import pytest

from rowpost.settings.environment import QueueSettings, SupervisorSettings, WorkerSettings
from rowpost.transport.queue import Queue
from rowpost.wire.headers import MESSAGE_ID
from rowpost.wire.message import OutgoingMessage
from tests.support.sagas import KINDS, deploy, race_optimistic, race_pessimistic
from tests.support.workers import Running

ENDPOINTS = {"pessimistic": race_pessimistic, "optimistic": race_optimistic}
WORKERS, INSTANCES = 8, 50
WHOLE = int(os.environ.get("ROWPOST_SAGA_RACE", "0"))


@pytest.fixture
def many(target):
    """How many messages: fewer where receivers wait for one another."""
    return WHOLE or (80 if target.babelfish else 800)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("concurrency", KINDS)
@pytest.mark.promise("saga-updates-are-not-lost")
def test_eight_workers_leave_fifty_instances_as_one_would_and_lose_no_message(
    target, sql, database, make_queue, concurrency, many
):
    endpoint = ENDPOINTS[concurrency]
    queue = make_queue(endpoint.name)
    deploy(target, endpoint)
    (table,) = [saga.name for saga in endpoint.sagas]
    sql.run(f"DELETE FROM {sql.table(table)}")
    for name in ("audit", "error"):
        sql.empty(name)
    dice = random.Random(2026)
    sent = [(f"account {dice.randrange(INSTANCES)}", dice.randrange(1, 100)) for _ in range(many)]
    queue.send_many(message(number, *each) for number, each in enumerate(sent))

    worker = WorkerSettings(f"tests.support.sagas:race_{concurrency}", limit=WORKERS, peek_delay=0.1)
    settings = replace(
        target.settings,
        queues=(QueueSettings(queue.name, worker=worker),),
        supervisor=SupervisorSettings(idle_timeout=0.3),
    )
    started = time.monotonic()
    with Running(settings) as running:
        running.until(lambda: sql.value(f"SELECT COUNT(*) FROM {sql.table('audit')}") == many, "all are handled", 1000)
        seconds = time.monotonic() - started
        running.idle()
        conflicts = running.supervisor.snapshot().queue(queue.name).failed

    model = Counter()
    for account, amount in sent:
        model[account] += amount
    rows = [row for page in pages(database, table) for row in page]
    assert {row[1]: json.loads(row[4])["Total"] for row in rows} == dict(model)
    assert sum(row[2] for row in rows) == many  # each message made one version
    assert notes(database) == Counter((account, str(amount)) for account, amount in sent)
    assert (queue.peek(), Queue("error", database).peek()) == (0, 0)
    if WHOLE:
        print(
            f"\n{target.label}, {concurrency}: {many} messages in {seconds:.1f} s, {many / seconds:.0f}/s, {conflicts} conflicts"
        )


def message(number: int, account: str, amount: int) -> OutgoingMessage:
    headers = {MESSAGE_ID: f"race {number}", "NServiceBus.EnclosedMessageTypes": "Ledger.Add"}
    return OutgoingMessage(json.dumps({"Account": account, "Amount": amount}).encode(), headers)


def pages(database, table):
    anchor = None
    while page := database.call("list_sagas", table, count=1000, after_id=anchor):
        yield page
        anchor = page[-1][0]


def notes(database) -> Counter:
    """What the sagas sent, message by message."""
    found, anchor, queue = Counter(), None, Queue("audit", database)
    while page := queue.browse(1000, anchor):
        for each in page:
            body = json.loads(each.body)
            found[body["Account"], body["What"]] += 1
        anchor = page[-1].row_version
    return found
