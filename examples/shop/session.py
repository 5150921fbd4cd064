"""The scripted session of `--ci`: what a customer and an operator would do, and what must be true afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

from examples.shop.stage import ERROR, Shop

from rowpost.transport.queue import Queue

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
    """Plays the session. Raises AssertionError with the step that went wrong."""
    visitor = Visitor(address)

    def check(step: str, holds: bool) -> None:
        if not holds:
            raise AssertionError(f"{step}: no. Orders: {shop.orders()}")
        say(f"ok  {step}")

    def wait(step: str, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + DEADLINE
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"{step}: not within {DEADLINE:.0f} s. Orders: {shop.orders()}")
            time.sleep(0.05)
        say(f"ok  {step}")

    def states() -> dict[str, str]:
        return {order.customer: order.state for order in shop.orders()}

    check("the page shows the form", "<form" in visitor.reads())
    code, page = visitor.orders("Ada & Söhne", "4111-1111", "19.90")
    check("an order is accepted, and Sales replied with its number", code == 200 and "Order 1 is accepted" in page)
    check("a customer is shown as typed, and harmless", "Ada &amp; Söhne" in page)
    check("a great order is accepted too", "Order 2 is accepted" in visitor.orders("Vip", "4111-1111", "5000")[1])
    check("an order on the blocked card is accepted", "is accepted" in visitor.orders("Bob", "4000-0000", "7,5")[1])
    check("an amount that is none is refused", visitor.orders("Eve", "4111-1111", "abc")[0] == 400)
    wait("the good orders are paid, packed, and shipped by a delayed message",
         lambda: states().get("Ada & Söhne") == states().get("Vip") == "shipped")  # fmt: skip
    wait("the blocked payment was tried again and is in the error queue", lambda: len(shop.failed_payments()) == 1)
    check("it is nobody's payment, and says why", states()["Bob"] == "placed" and "is blocked" in visitor.reads())
    wait("the order policy reminds of that order, and follows it alone", lambda: shop.reminded() == [3] and shop.followed() == ["3"])
    check("the payment is retried when the card is free", "1 payments are tried again" in visitor.retries()[1])
    wait("then that order is shipped too", lambda: states()["Bob"] == "shipped")
    wait("every queue is empty", lambda: _waiting(shop) == 0)
    check("every order was paid once, for its own amount", _payments(shop) == [750, 1990, 500_000])
    check("the order policy is done with every order, and reminded of one", shop.followed() == [] and shop.reminded() == [3])
    # 3 orders, each placed, billed and shipped; Billing and Shipping hear of each by one copy, the policy by two
    wait("every message that was handled is audited once", lambda: _audited(shop) == 18)


def _waiting(shop: Shop) -> int:
    names = ("Shop.Sales", "Shop.Billing", "Shop.Shipping", "Shop.Policy", "Shop.Web.web1", ERROR)
    with shop.connected() as database:
        return sum(Queue(name, database).peek() for name in names)


def _payments(shop: Shop) -> list[int]:
    with shop.connected() as database:
        return [row[0] for row in database.driver_connection.execute("SELECT amount FROM shop.payments ORDER BY 1").fetchall()]


def _audited(shop: Shop) -> int:
    """How many, without the policy's reminders: it asks for none where the payment overtook the order."""
    with shop.connected() as database:
        types = [each.headers["NServiceBus.EnclosedMessageTypes"] for each in Queue("Shop.audit", database).browse(100)]
    return sum("PaymentOverdue" not in each for each in types)
