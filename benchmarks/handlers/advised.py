"""Endpoints of contention.py's second table: what the seed advises, each beside its opposite. Worker processes import this module.

`impatient` and `patient`: one hot instance with and without the policy for conflicts. `shared` against `lone` and `others`: a
contended saga beside handlers that have nothing to do with it. `whole`, `locked`, `tree` and `in_turn` gather answers of
`stock`: in one instance, in chunks, one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from contended import NOTES, PATIENCE, account_endpoint

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
    """Takes no lock, and notes that it was handled."""
    context.send(Told(message.number), to=NOTES)


impatient = account_endpoint("optimistic", Recoverability(immediate_retries=5, delayed_retries=0), name="Impatient", notes=None)
patient = account_endpoint("optimistic", PATIENCE, name="Patient", notes=None)
shared = account_endpoint("pessimistic", PATIENCE, name="Shared", notes=None)
shared.handles("Bench.Other", Other)(note)
lone = account_endpoint("pessimistic", PATIENCE, name="Lone", notes=None)
others = Endpoint("Others")
others.handles("Bench.Other", Other)(note)

stock = Endpoint("Stock")


@stock.handles("Bench.Ask", Ask)
def tell(message, context):
    """Answers whoever asks."""
    context.reply(Told(message.number))


class Whole(ScatterGather[Ask, Told], at_most=None, concurrency="optimistic", table="Gather_whole"):
    """All answers to one instance, optimistic."""


class Locked(ScatterGather[Ask, Told], at_most=None, concurrency="pessimistic", table="Gather_locked"):
    """All answers to one instance, pessimistic."""


class Tree(ScatterGather[Ask, Told], at_most=20, concurrency="pessimistic", table="Gather_tree"):
    """Chunks of twenty answers."""


class InTurn(ScatterGather[Ask, Told], at_most=None, at_once=1, concurrency="pessimistic", table="Gather_in_turn"):
    """One after the other."""


def _gathers(saga: type[ScatterGather]) -> Endpoint:
    endpoint = Endpoint("Gather", recoverability=PATIENCE)
    endpoint.saga(saga)
    endpoint.route(Ask, to="Stock")
    return endpoint


whole, locked, tree, in_turn = map(_gathers, (Whole, Locked, Tree, InTurn))
gatherings = {"whole": Whole, "locked": Locked, "tree": Tree, "in_turn": InTurn}
