"""Charges cards at a terminal: plain functions, and a policy of its own."""

from collections.abc import Callable, Iterator
from datetime import timedelta

from rowpost import Context, Decision, Discard, Endpoint, Failure, MoveTo, Recoverability
from shop.journal import note, noted
from shop.messages import CardCharged, ChargeCard


class CardStolen(Exception):
    """Nobody wants to try this card again."""


class CardOfVip(Exception):
    """A person has to look at it."""


class TerminalBusy(Exception):
    """It is free again in a moment."""


class BankClosed(Exception):
    """It opens later."""


#: cards that cannot be charged at once: with what error, and how often
REFUSED = {
    "stolen": (CardStolen, 1),
    "vip": (CardOfVip, 1),
    "busy": (TerminalBusy, 2),
    "closed": (BankClosed, 1),
    "broken": (ValueError, 100),
}


class Terminal:
    """What a worker process has one of."""

    def charge(self, order_id: int, card: str) -> None:
        refused = f"refused {order_id}"
        error, times = REFUSED.get(card, (None, 0))
        if error is not None and noted().count(refused) < times:
            note(refused)
            raise error(f"{card}, {order_id}")


def decide(failure: Failure) -> Decision | timedelta | Discard | MoveTo:
    match failure.error:
        case CardStolen():
            return Discard("the card is stolen")
        case CardOfVip():
            return MoveTo("errors.vip")
        case BankClosed():
            return timedelta(milliseconds=50)
    return Decision.RETRY if failure.attempts < 3 else Decision.ERROR


charging = Endpoint("Charging", recoverability=Recoverability(policy=decide))


@charging.provides(Terminal)
def terminal() -> Iterator[Terminal]:
    note("terminal opened")
    yield Terminal()
    note("terminal closed")


@charging.at_start
def begin() -> None:
    note("charging began")


@charging.at_stop
def finish() -> None:
    note("charging ended")


@charging.around
def counted(message: ChargeCard, context: Context, proceed: Callable[[], object]) -> object:
    context.connection.execute("INSERT INTO surrounded (order_id, by) VALUES (%s, 'charging')", (message.order_id,))
    return proceed()


@charging.handles(ChargeCard)
def charge(message: ChargeCard, context: Context, terminal: Terminal) -> None:
    terminal.charge(message.order_id, message.card)
    context.connection.execute("INSERT INTO charged (order_id) VALUES (%s)", (message.order_id,))
    context.publish(CardCharged(message.order_id))
