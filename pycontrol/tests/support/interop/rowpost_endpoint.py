"""The endpoint of `tests/interop/endpoint`, written with rowpost: `python -m tests.support.interop.rowpost_endpoint NAME URL [option=value]…`.

It takes the same options and commands and reports the same lines, so that a scenario need not know which side it drives. One thread
handles messages with `Endpoint.process_one`, which is the pipeline that a worker runs; the main thread reads stdin.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import msgspec

from rowpost.database.connection import Connection, connect_url
from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.provisioning import prepare
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.sagas import Saga, handles, starts
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES
from rowpost.wire.json_serializer import JsonSerializer
from rowpost.wire.message_types import split_enclosed_types, type_name
from rowpost.wire.serialization import Serializer
from rowpost.wire.xml_serializer import XmlSerializer
from tests.support import babelfish
from tests.support.interop import messages as shop
from tests.support.schema import install_as_asked

__all__ = ["main"]

#: modes by NServiceBus's names
MODES = {
    "None": "none", "ReceiveOnly": "receive_only", "SendsAtomicWithReceive": "sends_atomic_with_receive", "TransactionScope": "transaction_scope",
}  # fmt: skip
SUBSCRIBED = (shop.IOrderEvent, shop.OrderBilled)
IDLE_S = 0.02
JSON = JsonSerializer()
_stdout = threading.Lock()


class Command(msgspec.Struct):
    """One line of stdin."""

    op: str
    type: str = ""
    body: msgspec.Raw = msgspec.Raw(b"{}")
    to: str | None = None
    local: int = 0
    delayMs: int = 0
    headers: dict[str, str] = {}
    instanceReply: int = 0
    repeat: int = 1


def report(**said: object) -> None:
    """Write one line."""
    with _stdout:
        sys.stdout.write(msgspec.json.encode(said).decode() + "\n")
        sys.stdout.flush()


def handled(message: object, context: Any) -> None:
    """Report a message as its handler got it, by the first of its types."""
    name = next(iter(split_enclosed_types(context.headers[ENCLOSED_MESSAGE_TYPES]))).rpartition(".")[2]
    report(handled=name, body=msgspec.Raw(JSON.encode(message)), headers=context.headers)


# ------------------------------------------------------------------ handlers
class Handlers:
    """What each message does. A message that is not here is only reported."""

    mended = False

    def place_order(self, message: shop.PlaceOrder, context: Any) -> None:
        handled(message, context)
        context.reply(shop.OrderAccepted(message.order_id))
        context.publish(shop.OrderPlaced(message.order_id))

    def take_payment(self, message: shop.TakePayment, context: Any) -> None:
        handled(message, context)
        context.reply(shop.PaymentDone(message.order_id))

    def values(self, message: shop.Values, context: Any) -> None:
        handled(message, context)
        if message.echo:
            context.reply(replace(message, echo=False))

    def parcel(self, message: shop.Parcel, context: Any) -> None:
        handled(shop.Parcel(len(message.data or b"")), context)

    def count(self, message: shop.Count, context: Any) -> None:
        report(counted=message.order_id)

    def timed(self, message: shop.Timed, context: Any) -> None:
        report(timed=message.order_id, at=int(time.time() * 1000))

    def fail(self, message: shop.Fail, context: Any) -> None:
        if not self.mended:
            raise ValueError(f"no such order: {message.order_id}")
        handled(message, context)

    def relay(self, message: shop.Relay, context: Any) -> None:
        context.send(shop.BillOrder(message.order_id), to=message.to)
        if message.then_fail:
            raise ValueError("after sending")
        handled(message, context)

    def by_class(self) -> dict[type, Any]:
        plain = (shop.OrderAccepted, *SUBSCRIBED, shop.BillOrder, shop.Ephemeral)
        return dict.fromkeys(plain, handled) | {
            shop.PlaceOrder: self.place_order, shop.TakePayment: self.take_payment, shop.Values: self.values, shop.Parcel: self.parcel,
            shop.Count: self.count, shop.Timed: self.timed, shop.Fail: self.fail, shop.Relay: self.relay,
        }  # fmt: skip


@dataclass
class OrderState:
    order_id: int
    paid: bool = False


class OrderSaga(Saga[OrderState], correlate={shop.StartOrder: "order_id"}):
    """Asks another endpoint for a payment, and ends at its timeout."""

    @starts(shop.StartOrder)
    def start(self, message: shop.StartOrder, context: Any) -> None:
        handled(message, context)
        context.send(shop.TakePayment(message.order_id), to=message.payments)
        context.request_timeout(timedelta(seconds=2), shop.Overdue())

    @handles(shop.PaymentDone)
    def paid(self, message: shop.PaymentDone, context: Any) -> None:
        self.state.paid = True
        handled(message, context)

    @handles(shop.Overdue)
    def overdue(self, message: shop.Overdue, context: Any) -> None:
        report(timeout=self.state.order_id, paid=self.state.paid)
        self.complete()


# ------------------------------------------------------------------ the endpoint
class Program:
    """One endpoint from a command line."""

    def __init__(self, name: str, url: str, options: Sequence[str]) -> None:
        given: dict[str, list[str]] = defaultdict(list)
        for option in options:
            key, _, value = option.partition("=")
            given[key].append(value)
        one = {key: values[0] for key, values in given.items()}
        self.engine, self.url = one.get("engine", "postgresql"), url
        self.handlers = Handlers()
        self.stopping = threading.Event()
        serializers: list[Serializer] = (
            [XmlSerializer(), JsonSerializer()]
            if one.get("serializer") == "xml"
            else [JsonSerializer(), XmlSerializer()]
        )
        self.endpoint = Endpoint(
            name,
            transaction_mode=MODES[one.get("mode", "SendsAtomicWithReceive")],
            audit_queue="audit" if one.get("audit", "on") == "on" else None,
            serializers=serializers,
            instance=one.get("instance"),
            recoverability=None
            if one.get("mode") == "None"
            else Recoverability(int(one.get("immediate", 1)), int(one.get("delayedRetries", 0)), timedelta(seconds=1)),
        )
        for cls, handler in self.handlers.by_class().items():
            self.endpoint.handles(type_name(cls), cls, subscribe=cls in SUBSCRIBED)(handler)
        if self.endpoint.transaction_mode != "none":  # rowpost runs no saga in this mode
            self.endpoint.saga(OrderSaga)
        for route in given["route"]:
            kind, _, destination = route.partition(":")
            self.endpoint.route(_class_of(kind), destination)

    def connect(self) -> Connection:
        return connect_url(self.engine, self.url, f"rowpost {self.endpoint.name}")

    def receive(self) -> None:
        """Handle messages until the program stops."""
        try:
            with self.connect() as database:
                while not self.stopping.is_set():
                    outcome = self.endpoint.process_one(database)
                    if outcome.error is not None:
                        print(f"{outcome.kind.value}: {outcome.error}", file=sys.stderr, flush=True)
                    if outcome.kind is Kind.EMPTY:
                        self.stopping.wait(IDLE_S)
        except BaseException as error:
            report(critical=f"{type(error).__name__}: {error}")
            raise

    def obey(self, line: str, database: Connection) -> bool:
        """Follow one command. Return whether to go on."""
        try:
            command = msgspec.json.decode(line, type=Command)
            if command.op == "stop":
                return False
            if command.op == "mend":
                self.handlers.mended = True
            else:
                for number in range(command.repeat):
                    self.send(command, number, database)
            report(done=command.op)
        except Exception as error:
            report(error=f"{type(error).__name__}: {error}")
        return True

    def send(self, command: Command, number: int, database: Connection) -> None:
        message = JSON.decode(bytes(command.body), _class_of(command.type))
        if command.repeat > 1:
            message.order_id = number
        if command.instanceReply:
            threading.Thread(target=self.request, args=(message, command.to), daemon=True).start()
            return
        with self.endpoint.open(database) as bus:
            if command.op == "publish":
                bus.publish(message)
            else:
                delay = timedelta(milliseconds=command.delayMs) if command.delayMs else None
                bus.send(
                    message, self.endpoint.name if command.local else command.to, delay=delay, headers=command.headers
                )

    def request(self, message: object, to: str | None) -> None:
        """Wait for a reply to this instance. It comes without its headers."""
        with self.connect() as database, self.endpoint.open(database) as bus:
            reply = bus.request(message, to, timeout=timedelta(seconds=30))
        report(handled=type(reply).__name__, body=msgspec.Raw(JSON.encode(reply)), headers={})

    def run(self) -> int:
        """Run until stdin ends or says so. Return the exit code."""
        try:
            database = self.connect()
            prepare(self.endpoint, database)
        except Exception as error:
            report(failed=f"{type(error).__name__}: {error}")
            return 1
        receiver = threading.Thread(target=self.receive, name="receiver")
        receiver.start()
        report(started=self.endpoint.name)
        for line in sys.stdin:
            if not self.obey(line, database):
                break
        self.stopping.set()
        receiver.join()
        self.endpoint.close()
        database.close()
        report(stopped=self.endpoint.name)
        return 0


def _class_of(name: str) -> type:
    found = getattr(shop, name, None) if name in shop.__all__ else None
    if found is None:
        raise ValueError(f"no type {name}")
    return found


def main(arguments: Sequence[str]) -> int:
    """Run the endpoint that the arguments describe. Return the exit code."""
    install_as_asked()
    name, url, *options = arguments
    babelfish.install()
    return Program(name, url, options).run()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
