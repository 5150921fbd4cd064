"""The web form: a send-only endpoint in a web application that uses the standard library's HTTP server.

It waits for the reply of Sales. Replies arrive in the queue of this instance, `Shop.Web.<instance>`.
"""

from __future__ import annotations

import os
from datetime import timedelta
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

from examples.shop.messages import OrderAccepted, PlaceOrder
from examples.shop.stage import Shop

from rowpost import Endpoint, NoReply, RowpostError

__all__ = ["make_server", "web"]

web = Endpoint("Shop.Web", send_only=True, instance=os.environ.get("SHOP_INSTANCE", "web1"))
web.route(PlaceOrder, "Shop.Sales")

REPLY_TIMEOUT = timedelta(seconds=10)
MAX_FORM_BYTES = 10_000
MAX_TEXT_LENGTH = 100
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>rowpost shop</title>
<style>body{{font:16px/1.5 system-ui;max-width:46rem;margin:2rem auto;padding:0 1rem}}input{{margin:0 1rem .5rem 0}}
table{{border-collapse:collapse;width:100%}}td,th{{text-align:left;padding:.3rem;border-bottom:1px solid #ddd}}
.told{{background:#eef6ee;padding:.5rem}}</style>
<h1>Shop</h1>{told}
<form method="post" action="/orders"><label>Name <input name="customer" required></label>
<label>Card <input name="card" value="4111-1111" required></label>
<label>Amount <input name="amount" value="19.90" required size="8"></label><button>Order</button></form>
<p>The card 4000-0000 is blocked: its payment fails, is retried, and moves to the error queue.</p>
<table><tr><th>Order<th>Customer<th>Amount<th>State</tr>{orders}</table>
<h2>Failed payments</h2><ul>{failed}</ul>
<form method="post" action="/retry"><button>Unblock the card and retry</button></form></html>"""


class Refused(Exception):
    """The form is invalid."""


def make_server(shop: Shop, port: int) -> ThreadingHTTPServer:
    """Make a server on 127.0.0.1. Port 0 selects a free port."""
    made = ThreadingHTTPServer(("127.0.0.1", port), type("Pages", (_Pages,), {"shop": shop}))
    web.callbacks(shop.settings).start()
    return made


class _Pages(BaseHTTPRequestHandler):
    """One thread per request. All threads share one receiver of replies."""

    shop: Shop
    timeout = 30

    def do_GET(self) -> None:
        self._show(HTTPStatus.OK if self.path == "/" else HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        actions = {"/orders": self._order, "/retry": self._retry}
        try:
            told = actions[self.path](self._form()) if self.path in actions else None
        except Refused as error:
            self._show(HTTPStatus.BAD_REQUEST, str(error))
        except NoReply:
            self._show(HTTPStatus.GATEWAY_TIMEOUT, "Sales did not reply in time; the order is still in its queue.")
        except RowpostError as error:
            self._show(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        else:
            self._show(HTTPStatus.NOT_FOUND if told is None else HTTPStatus.OK, told)

    def _order(self, form: dict[str, str]) -> str:
        customer, card, amount = (form.get(name, "").strip() for name in ("customer", "card", "amount"))
        if (
            not customer
            or not card
            or len(customer) > MAX_TEXT_LENGTH
            or len(card) > MAX_TEXT_LENGTH
            or "\0" in customer + card
        ):
            raise Refused("An order needs a name and a card, each with at most 100 characters.")
        accepted = web.callbacks().request(PlaceOrder(customer, card, _cents(amount)), timeout=REPLY_TIMEOUT)
        if not isinstance(accepted, OrderAccepted):
            raise Refused("Sales sent an unexpected reply.")
        return f"Order {accepted.order_id} is accepted."

    def _retry(self, form: dict[str, str]) -> str:
        return f"Retrying {self.shop.unblock_and_retry()} payments."

    def _form(self) -> dict[str, str]:
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or int(length) > MAX_FORM_BYTES:
            raise Refused("The form is too long.")
        try:
            fields = parse_qs(self.rfile.read(int(length)).decode(), max_num_fields=10)
        except (UnicodeDecodeError, ValueError) as error:
            raise Refused("The form cannot be read.") from error
        return {name: values[0] for name, values in fields.items()}

    def _show(self, status: HTTPStatus, told: str | None = None) -> None:
        orders = "".join(
            f"<tr><td>{o.order_id}<td>{escape(o.customer)}<td>{o.amount / 100:.2f}<td>{o.state}</tr>"
            for o in self.shop.orders()
        )
        failed = (
            "".join(f"<li>{escape(m.exception_message)}</li>" for m in self.shop.failed_payments()) or "<li>none</li>"
        )
        banner = f'<p class="told">{escape(told)}</p>' if told else ""
        body = PAGE.format(told=banner, orders=orders, failed=failed).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing, so that the supervisor's events stay readable."""


def _cents(text: str) -> int:
    whole, _, part = text.replace(",", ".").partition(".")
    digits = whole + part.ljust(2, "0")
    if not (digits.isascii() and digits.isdigit()) or len(part) > 2 or not 0 < int(digits) < 10**12:
        raise Refused(f"{text!r} is not an amount: write, for example, 19.90")
    return int(digits)
