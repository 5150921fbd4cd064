"""The saga of contention.py. Worker processes import this module.

Each message adds an amount to its account and sends a notification. Meanwhile the handler waits `milliseconds`, as if it
called another service. The chain depends on the order in which an account's messages were handled.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from rowpost.endpoint.endpoint import Endpoint
from rowpost.recoverability.policy import Recoverability
from rowpost.sagas import ConflictPolicy, Saga, starts
from rowpost.wire.message_types import message_type

__all__ = ["NOTES", "PATIENCE", "RUNS", "Add", "account_endpoint", "follow", "optimistic", "pessimistic"]

#: The environment variable that names a file. Each run of a handler appends one byte, even if it is rolled back.
RUNS = "ROWPOST_BENCH_RUNS"
NOTES = "Noted"


@message_type("Bench.Add")
@dataclass(frozen=True)
class Add:
    account: str
    amount: int
    milliseconds: float


@message_type("Bench.Noted")
@dataclass(frozen=True)
class Noted:
    account: str
    total: int


@dataclass
class AccountState:
    account: str
    total: int = 0
    chain: int = 0


def follow(chain: int, amount: int) -> int:
    """Return the chain after one more amount. Another order of the same amounts gives another chain."""
    return (chain * 31 + amount) % (1 << 31)


def account_endpoint(
    concurrency: str, recoverability: Recoverability, *, name: str = "Hot", notes: str | None = NOTES
) -> Endpoint:
    """Create an endpoint with the saga. If `notes` is None, it sends nothing."""
    endpoint = Endpoint(name, recoverability=recoverability)

    @endpoint.saga
    class Account(
        Saga[AccountState], correlate={Add: "account"}, concurrency=concurrency, table=f"{name}_{concurrency}"
    ):
        @starts(Add)
        def add(self, message, context):
            os.write(_runs, b".")
            time.sleep(message.milliseconds / 1000)
            self.state.total += message.amount
            self.state.chain = follow(self.state.chain, message.amount)
            if notes is not None:
                context.send(Noted(self.state.account, self.state.total), to=notes)

    return endpoint


_runs = os.open(os.environ.get(RUNS, os.devnull), os.O_WRONLY | os.O_APPEND)
PATIENCE = Recoverability(policy=ConflictPolicy(retries=10_000))
pessimistic = account_endpoint("pessimistic", PATIENCE)
optimistic = account_endpoint("optimistic", PATIENCE)
