"""Publish: what an event costs, beside sends to the same queues, and beside many queues and subscriptions of other events.

One connection makes one transaction after another, each with a durable commit. A message has a body of 512 bytes and a mapping of
five headers. The event of each case has that many subscribers; the other subscriptions are those of other events. The other queues
are in the registry, and have no messages. `send to each` stores the same number of copies in one transaction with one call each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from benchmarks.suite.figures import OURS, Contender, Line, Lines, Round, Scale, Target, ratio, take_turns
from benchmarks.suite.server import BODY, HEADERS, Place, Server
from rowpost.wire.message import encode_headers

#: queues and subscriptions of the database
SIZES = ((80, 400), (1000, 1000))
SUBSCRIBERS = (1, 10)
SEND = "send to each"
CALLS = 200
ROUTE = 'INSERT INTO public."SubscriptionRouting" (endpoint, topic, queueaddress) VALUES (%s, %s, %s)'


def case_name(size: tuple[int, int], subscribers: int) -> str:
    return f"{size[0]:,} queues, {size[1]:,} subscriptions, {subscribers} subscribers"


def measure(server: Server, scale: Scale) -> list[Line]:
    lines = []
    names = [f"Subscriber{number}" for number in range(max(SUBSCRIBERS))]
    for size in SIZES:
        with server.place(f"publish_{size[0]}", *names) as place:
            _crowd(place, names, *size)
            for subscribers in SUBSCRIBERS:
                event = partial(_publish, place, subscribers, scale)
                sends = partial(_send, place, names[:subscribers], scale)
                contenders = [Contender(OURS, event, unit="ms"), Contender(SEND, sends, unit="ms")]
                lines += take_turns(case_name(size, subscribers), contenders, scale.rounds)
    return lines


def _crowd(place: Place, names: list[str], queues: int, subscriptions: int) -> None:
    """Register further queues, and subscribe to the event of each case and to others."""
    for number in range(queues - len(names)):
        name = f"Other{number}"
        place.database.call(
            "register_queue", queue_key=name, queue_name=name, catalog_name=None, schema_name="public", table_name=name,
            kind="external", body_string=False, clustered=True, delayed=False,
        )  # fmt: skip
    for subscribers in SUBSCRIBERS:
        for name in names[:subscribers]:
            place.sql(ROUTE, [name, f"Bench.Event{subscribers}", f'"public"."{name}"'])
    for number in range(subscriptions - sum(SUBSCRIBERS)):
        place.sql(ROUTE, [f"Endpoint{number}", f"Bench.Other{number % 40}", f'"public"."Other{number % 60}"'])
    place.tidy('public."SubscriptionRouting"', "rowpost.queue")


def _publish(place: Place, subscribers: int, scale: Scale) -> Round:
    values = {"topics": [f"Bench.Event{subscribers}"], "headers": encode_headers(HEADERS), "body": BODY}

    def once() -> None:
        if len(place.database.call("publish_message", **values)) != subscribers:
            raise RuntimeError("the event did not reach its subscribers: the benchmark is wrong")

    return _clock(place, once, scale)


def _send(place: Place, names: list[str], scale: Scale) -> Round:
    values = {"headers": encode_headers(HEADERS), "body": BODY}

    def each() -> None:
        for name in names:
            place.database.call("send_message", name, **values)

    return _clock(place, each, scale)


def _clock(place: Place, once: Callable[[], None], scale: Scale) -> Round:
    """Return the milliseconds of one transaction."""
    calls = scale.rows(CALLS)
    started = time.perf_counter()
    for _ in range(calls):
        with place.database.transaction():
            once()
    return Round((time.perf_counter() - started) / calls * 1000)


def targets(lines: Lines) -> list[Target]:
    found = []
    for size in SIZES:
        for subscribers in SUBSCRIBERS:
            case = case_name(size, subscribers)
            times = ratio(lines.get(case), lines.get(case, SEND))
            found.append(Target(f"{case}: as long as as many sends", times, 1 + 0.5 / subscribers, at_most=True))
    few, many = (case_name(size, 1) for size in SIZES)
    found.append(
        Target(
            "publish among 1,000 queues: as long as among 80", ratio(lines.get(many), lines.get(few)), 1.1, at_most=True
        )
    )
    return found
