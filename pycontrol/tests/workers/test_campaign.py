"""A sample of the campaign of faults that `make test/faults` runs as a whole, and its ledger's own tests."""

import random
from collections import Counter

import pytest

from tests.support.campaign import failover, fuzz, injected, kinds, surroundings, ticks
from tests.support.campaign.ledger import Ledger


@pytest.mark.faults
@pytest.mark.parametrize(
    ("run", "times", "modes"),
    [
        (kinds.kills, 3, ["sends_atomic_with_receive"]),
        (kinds.kills, 6, ["tasks", "threads"]),
        (kinds.kills, 8, ["joined"]),
        (kinds.crashes, 1, ["outbox"]),
        (kinds.wires, 2, ["transaction_scope"]),
        (failover.failovers, 1, ["receive_only"]),
        (injected.errors, 50, None),
        (surroundings.settings, 2, None),
        (ticks.ticks, 300, None),
        (fuzz.functions, 10_000, None),
        (fuzz.workers, 100, None),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.promise("each-message-once")
def test_nothing_is_lost_doubled_or_stuck(run, times, modes):
    result = run(times, random.Random(f"sample {run.__name__}"), *([modes] if modes else []))

    assert result.wrong == []
    assert result.done.total() >= times


def ledger(sent=(1, 2), handled=(1, 2), forwarded=(1, 2), failed=(), **more):
    return Ledger(
        more.pop("acknowledged", set()), set(sent), Counter(handled), Counter(forwarded), Counter(failed), **more
    )


def test_a_ledger_that_is_right_says_nothing():
    assert ledger().wrong("sends_atomic_with_receive") == []
    assert ledger(handled=(1,), forwarded=(1,), failed=(2,)).wrong("sends_atomic_with_receive") == []
    assert ledger(forwarded=(1, 1, 2)).wrong("receive_only") == []
    assert ledger(handled=(1,), forwarded=(1,)).wrong("none", may_lose=1) == []
    assert ledger(handled=(1,), forwarded=(1,), waiting={2}).wrong("outbox") == []


@pytest.mark.parametrize(
    ("made", "mode", "words"),
    [
        (ledger(handled=(1,), forwarded=(1,)), "sends_atomic_with_receive", "lost: 1 (2)"),
        (ledger(handled=(1,), forwarded=(1,)), "none", "lost: 1 (2)"),
        (ledger(handled=(1, 2, 2), forwarded=(1, 2, 2)), "outbox", "handled twice: 1 (2)"),
        (ledger(forwarded=(1, 1, 2)), "outbox", "not sent once: 1 (1)"),
        (ledger(forwarded=(1,)), "receive_only", "its message was not sent: 1 (2)"),
        (ledger(failed=(2,)), "sends_atomic_with_receive", "handled and in the error queue: 1 (2)"),
        (ledger(handled=(1,), forwarded=(1,), failed=(2, 2)), "receive_only", "in the error queue twice: 1 (2)"),
        (ledger(sent=(1,)), "receive_only", "never sent, and yet there: 1 (2)"),
        (ledger(sent=(1, 2, 7), handled=(1, 2, 7), forwarded=(1, 2, 7)), "outbox", "although its handler fails: 1 (7)"),
        (ledger(disagree={1}), "transaction_scope", "not in the other: 1 (1)"),
        (ledger(acknowledged={1, 3}), "transaction_scope", "committed, and not there: 1 (3)"),
    ],
)  # fmt: skip
def test_a_ledger_names_each_broken_promise(made, mode, words):
    assert [sentence for sentence in made.wrong(mode) if words in sentence]
