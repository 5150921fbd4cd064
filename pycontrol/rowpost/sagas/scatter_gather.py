"""Scatter-gather: many requests, and one message when all of them are answered, without one row that all answers change.

    class StockCheck(ScatterGather[CheckLine, LineChecked], at_most=100):
        pass

    checking = Endpoint("Checking")                      # beside the saga that asks, or in an endpoint of its own
    checking.saga(StockCheck)
    checking.route(CheckLine, to="Stock")                # who answers: context.reply(LineChecked(…))

    class OrderPolicy(Saga[OrderState], …):
        @starts(PlaceOrder)
        def placed(self, message, context):
            StockCheck.scatter(context, message.order_id, [CheckLine(each) for each in message.lines], to="Checking")

        @handles(StockCheck.Gathered)                    # finds its saga by itself, as every reply does
        def checked(self, message, context):
            self.state.missing = [each.sku for each in message.results if not each.in_stock]

A saga that sends 10,000 requests and counts the answers itself is changed 10,000 times, and each change waits for the one
before it, or fails against it. Here it is changed once. The requests are split among sub-sagas, and theirs again, so that
none waits for more than `at_most` answers; each answers the one above it with what it gathered (seed 003, "Apply chunking
by creating sub-saga instances").
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from rowpost.errors import InvalidMessage, SettingsError
from rowpost.handling.context import Bus
from rowpost.sagas import Saga, SagaContext, handles, starts
from rowpost.wire.message_types import message_type, type_name

__all__ = ["ScatterGather", "split"]

Request = TypeVar("Request")
Response = TypeVar("Response")


def split(items: Sequence[Any], at_most: int) -> list[tuple[Any, ...]]:
    """Groups for the children of a tree in which nobody has more than `at_most`, as flat as can be, of about one size.

    >>> [len(group) for group in split(range(250), at_most=100)], [len(group) for group in split(range(20_000), at_most=100)]
    ([84, 84, 82], [10000, 10000])
    """
    below = at_most
    while below * at_most < len(items):  # what one child can have below it
        below *= at_most
    count = -(-len(items) // below)
    size = -(-len(items) // max(1, count))
    return [tuple(items[start : start + size]) for start in range(0, len(items), size or 1)]


class ScatterGather(Saga[Any], Generic[Request, Response]):
    """A saga that sends requests of one class and gathers the responses of another; both are dataclasses.

    Class arguments, beside those of Saga:
        at_most: how many answers an instance waits for. More requests are split among sub-sagas; None: never.
        at_once: how many requests of an instance are under way at a time; None: all of them. 1 asks one after the
            other, each when the answer to the last has come: nothing contends, and it takes as long as all of them
            together. Those that wait are part of the state.

    `Gathered` is the message that answers: its `name`, and in `results` the responses, in the order in which they came.

    Raises:
        SettingsError: the class cannot work as it is declared.
    """

    Part: ClassVar[type]
    Gathered: ClassVar[type]

    def __init_subclass__(cls, *, at_most: int | None = 100, at_once: int | None = None, **options: Any) -> None:
        request, response = _classes_of(cls)
        for name, value, least in (("at_most", at_most, 2), ("at_once", at_once, 1)):
            if value is not None and value < least:
                raise SettingsError(f"The saga {cls.__name__} cannot have {name}={value}: give {least} or more, or None.")
        cls.Part = _message(cls, "Part", name=str, items=tuple[request, ...])
        cls.Gathered = _message(cls, "Gathered", name=str, results=tuple[response, ...])

        @starts(cls.Part)
        def started(self: ScatterGather, message: Any, context: SagaContext) -> None:
            self._begin(message, context, at_most, at_once)

        @handles(response)
        def answered(self: ScatterGather, message: Any, context: SagaContext) -> None:
            self._take([message], context)

        @handles(cls.Gathered)
        def gathered(self: ScatterGather, message: Any, context: SagaContext) -> None:
            self._take(message.results, context)

        cls.started, cls.answered, cls.gathered = started, answered, gathered
        super().__init_subclass__(correlate={cls.Part: "name"}, state=_state_of(cls, request, response), **options)

    @classmethod
    def scatter(cls, context: Bus, name: str, requests: Iterable[Request], *, to: str | None = None) -> str:
        """Sends the requests, and `Gathered` to the endpoint that calls this, to its saga if one does, when all are answered.

        Args:
            name: tells this gathering from all others that are under way: an order's id, say. It is a correlation value,
                to which each level of sub-sagas adds its place: "A1", "A1.17".
            to: the queue of the endpoint that hosts this saga; its own, where that is the one that calls.
        """
        return context.send(cls.Part(name, tuple(requests)), to=to or context.endpoint.name)

    def combine(self, results: list[Response]) -> list[Response]:
        """What an instance hands on of its results; may be overridden to keep less of them. This one keeps all."""
        return results

    def _begin(self, part: Any, context: SagaContext, at_most: int | None, at_once: int | None) -> None:
        if self.state.awaits:
            raise InvalidMessage(f"{type(self).__name__} gathers for {part.name!r} already: give each gathering another name.")
        if at_most is not None and len(part.items) > at_most:
            groups = split(part.items, at_most)
            for number, group in enumerate(groups, 1):
                self.scatter(context, f"{part.name}.{number}", group)
            self.state.awaits = len(groups)
        else:
            self.state.awaits = len(part.items)
            now = len(part.items) if at_once is None else at_once
            self.state.waiting = list(part.items[now:])
            for request in part.items[:now]:
                context.send(request)
        self._finish(context)

    def _take(self, results: Sequence[Response], context: SagaContext) -> None:
        self.state.results.extend(results)
        self.state.awaits -= 1
        if self.state.waiting:
            context.send(self.state.waiting.pop(0))
        self._finish(context)

    def _finish(self, context: SagaContext) -> None:
        if self.state.awaits == 0:
            context.reply_to_originator(self.Gathered(self.state.name, tuple(self.combine(self.state.results))))
            self.complete()


def _classes_of(cls: type) -> tuple[type, type]:
    for base in getattr(cls, "__orig_bases__", ()):
        arguments = typing.get_args(base)
        if len(arguments) == 2 and all(map(dataclasses.is_dataclass, arguments)):  # noqa: PLR2004 -- request and response
            return arguments
    raise SettingsError(f"The saga {cls.__name__} names no messages: write class X(ScatterGather[Request, Response]) with two dataclasses.")


def _message(cls: type, called: str, /, **fields: Any) -> type:
    made = dataclasses.make_dataclass(called, fields.items(), frozen=True, namespace={"__module__": cls.__module__})
    return message_type(f"{type_name(cls)}.{called}")(made)


def _state_of(cls: type, request: type, response: type) -> type:
    """How many answers are awaited, which requests wait to be sent, and what has come."""
    lists = ((name, list[kind], dataclasses.field(default_factory=list)) for name, kind in (("waiting", request), ("results", response)))
    fields = [("name", str), ("awaits", int, dataclasses.field(default=0)), *lists]
    return dataclasses.make_dataclass(f"{cls.__name__}State", fields, namespace={"__module__": cls.__module__})
