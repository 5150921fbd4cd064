"""The messages of the demo and the expected result. Pure functions without I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property

from rowpost.settings.environment import QueueSettings, SupervisorSettings, WorkerSettings

__all__ = ["AUDIT", "BILLING", "ERROR", "SALES", "SUPERVISOR", "DemoResult", "Scenario", "queues"]

BILLING, SALES, ERROR, AUDIT = "Demo.Billing", "Demo.Sales", "Demo.error", "Demo.audit"
SUPERVISOR = SupervisorSettings(error_queue=ERROR, stop_timeout=10.0, idle_timeout=1.0)

FIRST_ORDER = 100_001
MAX_FAILING = 5
#: rows in sql/*/foreign_rows.sql, by their expected result
FOREIGN_HANDLED, FOREIGN_EXPIRED, FOREIGN_CORRUPT = 3, 1, 1
#: messages in wire/, by their queue
WIRE_BILLING, WIRE_SALES, WIRE_ERROR, WIRE_AUDIT = 2, 2, 1, 1


@dataclass(frozen=True)
class DemoResult:
    """How many messages were handled, failed, expired or are waiting.

    `handled` counts rows of the business table and `handled_once` counts distinct messages in it. `burst_handled` and
    `burst_handled_once` count only messages of the burst. `waiting` counts messages in the queues with a worker.
    """

    handled: int
    handled_once: int
    burst_handled: int
    burst_handled_once: int
    in_error: int
    in_audit: int
    expired: int
    waiting: int

    def exactly_once(self, right: str) -> str:
        """Say that no message was handled twice, in the words `right`, or how many were."""
        doubled = self.handled - self.handled_once
        return f"{doubled:,} of them more than once" if doubled else right


@dataclass(frozen=True)
class Scenario:
    """A burst of `orders` orders, in addition to the fixed messages.

    >>> scenario = Scenario(orders=20_000)
    >>> scenario.sent, scenario.expected.handled, scenario.expected.in_error
    (20011, 20002, 7)
    """

    orders: int

    @property
    def sent(self) -> int:
        """Number of messages that the demo sends."""
        wire = WIRE_BILLING + WIRE_SALES + WIRE_ERROR + WIRE_AUDIT
        return self.orders + wire + FOREIGN_HANDLED + FOREIGN_EXPIRED + FOREIGN_CORRUPT

    @cached_property
    def failing(self) -> frozenset[int]:
        """Numbers of the orders that fail, spread over the burst."""
        many = min(MAX_FAILING, self.orders // 2)
        return frozenset(FIRST_ORDER + self.orders * (2 * i + 1) // (2 * many) for i in range(many))

    def bodies(self) -> Iterator[bytes]:
        """Yield the bodies of the burst. Orders that fail have a negative amount."""
        for number in range(FIRST_ORDER, FIRST_ORDER + self.orders):
            cents = 990 + number * 37 % 50_000
            amount = -cents / 100 if number in self.failing else cents / 100
            order = {"OrderId": number, "Customer": f"C-{number % 1000:04}", "Amount": amount}
            yield json.dumps(order, separators=(",", ":")).encode()

    @property
    def expected(self) -> DemoResult:
        """The expected result."""
        burst = self.orders - len(self.failing)
        handled = burst + WIRE_BILLING + WIRE_SALES + FOREIGN_HANDLED
        in_error = len(self.failing) + WIRE_ERROR + FOREIGN_CORRUPT
        return DemoResult(
            handled, handled, burst, burst, in_error, in_audit=WIRE_AUDIT, expired=FOREIGN_EXPIRED, waiting=0
        )

    def differences(self, result: DemoResult) -> list[str]:
        """Describe every difference from the expected result, one line each."""
        got, expected = asdict(result), asdict(self.expected)
        return [
            f"{name.replace('_', ' ')}: {got[name]:,}, expected {expected[name]:,}"
            for name in got
            if got[name] != expected[name]
        ]


def queues(workers: int, canonical: dict[str, str]) -> tuple[QueueSettings, ...]:
    """Return the demo's queues. `canonical` maps their names to those in the environment's default schema."""
    billing = WorkerSettings("rowpost.cli.demo.handlers:place_order", limit=workers, attempts=3, peek_delay=0.5)
    sales = WorkerSettings("rowpost.cli.demo.handlers:note_event", secondary=True, attempts=3, peek_delay=0.5)
    return (
        QueueSettings(canonical[BILLING], worker=billing),
        QueueSettings(canonical[SALES], worker=sales),
        QueueSettings(canonical[ERROR]),
        QueueSettings(canonical[AUDIT]),
    )
