"""rowpost at the work of benchmarks/endpoint.py: worker processes import this module."""

from dataclasses import dataclass

from rowpost.endpoint import Endpoint
from rowpost.message_types import message_type


@message_type("Bench.Work")
@dataclass(frozen=True)
class Work:
    number: int


@message_type("Bench.Follow")
@dataclass(frozen=True)
class Follow:
    number: int


insert = Endpoint("Bench")
nothing = Endpoint("Bench")


@insert.handles("Bench.Work", Work)
def insert_and_send(message: Work, context) -> None:
    """One business INSERT and one outgoing message, which commit together with the removal of this one."""
    context.connection.execute("INSERT INTO business (number) VALUES (%s)", (message.number,))
    context.send(Follow(message.number), to="Follow")


@nothing.handles("Bench.Work", Work)
def do_nothing(message: Work, context) -> None:
    """The message is decoded, and that is all."""
