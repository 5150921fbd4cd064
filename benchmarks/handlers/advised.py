"""The endpoints of contention.py's second table: the advice of docs/guides/contention.md and its alternatives.

Worker processes import this module. `impatient` and `patient` handle one hot instance without and with a conflict policy.
`shared` has a contended saga and unrelated handlers in one endpoint; `lone` and `others` separate them. `whole`, `locked`,
`tree` and `in_turn` gather answers of `stock` in one instance, in chunks, or one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.handlers.contended import NOTES, PATIENCE, account_endpoint

from rowpost.endpoint.endpoint import Endpoint
from rowpost.recoverability.policy import Recoverability
from rowpost.sagas.scatter_gather import ScatterGather
from rowpost.wire.message_types import message_type

__all__ = ["Ask", "Other", "gatherings", "impatient", "lone", "others", "patient", "shared", "stock"]


@message_type("Bench.Other")
@dataclass(frozen=True)
class Other:
    number: int


@message_type("Bench.Ask")
@dataclass(frozen=True)
class Ask:
    number: int


@message_type("Bench.Told")
@dataclass(frozen=True)
class Told:
    number: int


def note(message, context):
    """Send a notification, without taking a lock."""
    context.send(Told(message.number), to=NOTES)


impatient = account_endpoint(
    "optimistic", Recoverability(immediate_retries=5, delayed_retries=0), name="Impatient", notes=None
)
patient = account_endpoint("optimistic", PATIENCE, name="Patient", notes=None)
shared = account_endpoint("pessimistic", PATIENCE, name="Shared", notes=None)
shared.handles("Bench.Other", Other)(note)
lone = account_endpoint("pessimistic", PATIENCE, name="Lone", notes=None)
others = Endpoint("Others")
others.handles("Bench.Other", Other)(note)

stock = Endpoint("Stock")


@stock.handles("Bench.Ask", Ask)
def tell(message, context):
    """Reply to the sender."""
    context.reply(Told(message.number))


class Whole(ScatterGather[Ask, Told], at_most=None, concurrency="optimistic", table="Gather_whole"):
    """Gather all answers in one instance with optimistic concurrency control."""


class Locked(ScatterGather[Ask, Told], at_most=None, concurrency="pessimistic", table="Gather_locked"):
    """Gather all answers in one instance with pessimistic concurrency control."""


class Tree(ScatterGather[Ask, Told], at_most=20, concurrency="pessimistic", table="Gather_tree"):
    """Gather the answers in chunks of twenty."""


class InTurn(ScatterGather[Ask, Told], at_most=None, at_once=1, concurrency="pessimistic", table="Gather_in_turn"):
    """Request the answers one after the other."""


def _gathers(saga: type[ScatterGather]) -> Endpoint:
    endpoint = Endpoint("Gather", recoverability=PATIENCE)
    endpoint.saga(saga)
    endpoint.route(Ask, to="Stock")
    return endpoint


whole, locked, tree, in_turn = map(_gathers, (Whole, Locked, Tree, InTurn))
gatherings = {"whole": Whole, "locked": Locked, "tree": Tree, "in_turn": InTurn}
