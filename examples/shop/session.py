"""The scripted session of `--ci`: the steps of a customer and an operator, with checks after each step."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

from examples.shop.stage import ERROR, Shop

from rowpost import Queue

__all__ = ["play"]

DEADLINE = 60.0  # seconds


class Visitor:
    """A browser."""

    def __init__(self, address: str) -> None:
        self.address = address

    def reads(self) -> str:
        return self._sends("/")[1]

    def orders(self, customer: str, card: str, amount: str) -> tuple[int, str]:
        return self._sends("/orders", customer=customer, card=card, amount=amount)

    def retries(self) -> tuple[int, str]:
        return self._sends("/retry", sure="yes")

    def _sends(self, path: str, **form: str) -> tuple[int, str]:
        try:
            with urlopen(self.address + path, urlencode(form).encode() if form else None, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()


def play(address: str, shop: Shop, say: Callable[[str], None]) -> None:
    """Run the session. Raises AssertionError that names the failed step."""
    visitor = Visitor(address)

    def check(step: str, holds: bool) -> None:
        if not holds:
            raise AssertionError(f"failed: {step}. Orders: {shop.orders()}")
        say(f"ok  {step}")

    def wait(step: str, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + DEADLINE
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"not within {DEADLINE:.0f} s: {step}. Orders: {shop.orders()}")
            time.sleep(0.05)
        say(f"ok  {step}")

    def states() -> dict[str, str]:
        return {order.customer: order.state for order in shop.orders()}

    check("the page shows the form", "<form" in visitor.reads())
    code, page = visitor.orders("Ada & Söhne", "4111-1111", "19.90")
    check("an order is accepted, and Sales replied with its number", code == 200 and "Order 1 is accepted" in page)
    check("a customer's name is shown as typed, with HTML escaped", "Ada &amp; Söhne" in page)
    check("a large order is accepted too", "Order 2 is accepted" in visitor.orders("Vip", "4111-1111", "5000")[1])
    check("an order on the blocked card is accepted", "is accepted" in visitor.orders("Bob", "4000-0000", "7,5")[1])
    check("an invalid amount is refused", visitor.orders("Eve", "4111-1111", "abc")[0] == 400)
    wait("the good orders are paid, packed, and shipped by a delayed message",
         lambda: states().get("Ada & Söhne") == states().get("Vip") == "shipped")  # fmt: skip
    wait("the blocked payment was retried and is in the error queue", lambda: len(shop.failed_payments()) == 1)
    check(
        "that order is not paid, and the page shows the reason",
        states()["Bob"] == "placed" and "is blocked" in visitor.reads(),
    )
    wait(
        "the order policy stored a reminder for that order, the only one with an active saga",
        lambda: shop.reminded() == [3] and shop.followed() == ["3"],
    )
    check("the payment is retried after the card is unblocked", "Retrying 1 payments" in visitor.retries()[1])
    wait("then that order is shipped too", lambda: states()["Bob"] == "shipped")
    wait("every queue is empty", lambda: _waiting(shop) == 0)
    check("every order was paid once, for its own amount", _payments(shop) == [750, 1990, 500_000])
    check("the order policy completed all orders and reminded of one", shop.followed() == [] and shop.reminded() == [3])
    # 3 orders, each placed, billed and shipped; Billing and Shipping receive one event of each, the policy two
    wait("every handled message is audited once", lambda: _audited(shop) == 18)


def _waiting(shop: Shop) -> int:
    names = ("Shop.Sales", "Shop.Billing", "Shop.Shipping", "Shop.Policy", "Shop.Web.web1", ERROR)
    with shop.connected() as database:
        return sum(Queue(name, database).peek() for name in names)


def _payments(shop: Shop) -> list[int]:
    with shop.connected() as database:
        return [
            row[0]
            for row in database.driver_connection.execute("SELECT amount FROM shop.payments ORDER BY 1").fetchall()
        ]


def _audited(shop: Shop) -> int:
    """How many, without the policy's reminders: it asks for none where the payment overtook the order."""
    with shop.connected() as database:
        types = [each.headers["NServiceBus.EnclosedMessageTypes"] for each in Queue("Shop.audit", database).browse(100)]
    return sum("PaymentOverdue" not in (each or "") for each in types)
