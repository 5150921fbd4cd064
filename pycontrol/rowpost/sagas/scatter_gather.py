"""Scatter-gather: send many requests, and receive one message when all of them are answered.

    class StockCheck(ScatterGather[CheckLine, LineChecked], at_most=100):
        pass

    checking = Endpoint("Checking")                      # the endpoint of the requesting saga, or a separate one
    checking.saga(StockCheck)
    checking.route(CheckLine, to="Stock")                # its handler answers: context.reply(LineChecked(…))

    class OrderPolicy(Saga[OrderState], …):
        @starts(PlaceOrder)
        def placed(self, message, context):
            StockCheck.scatter(context, message.order_id, [CheckLine(each) for each in message.lines], to="Checking")

        @handles(StockCheck.Gathered)                    # finds its saga by the saga's id, as every reply does
        def checked(self, message, context):
            self.state.missing = [each.sku for each in message.results if not each.in_stock]

A saga that sends 10,000 requests and counts the answers itself is changed 10,000 times. Each change waits for the one
before, or conflicts with it. With scatter-gather it is changed once. The requests are divided among sub-sagas,
recursively, so that none waits for more than `at_most` answers. Each sub-saga replies to its parent with the results
that it gathered. See docs/guides/contention.md.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Sequence
from types import GenericAlias
from typing import Any, ClassVar, Generic, TypeVar

from rowpost.errors import InvalidMessage, SettingsError
from rowpost.handling.context import Bus
from rowpost.sagas import Saga, SagaContext, handles, starts
from rowpost.wire.message_types import message_type, type_name

__all__ = ["ScatterGather", "split"]

Request = TypeVar("Request")
Response = TypeVar("Response")


def split(items: Sequence[Any], at_most: int) -> list[tuple[Any, ...]]:
    """Split items into groups of about equal size: the children of the flattest tree with at most `at_most` per node.

    >>> [len(group) for group in split(range(250), at_most=100)], [len(group) for group in split(range(20_000), at_most=100)]
    ([84, 84, 82], [10000, 10000])
    """  # noqa: E501
    below = at_most
    while below * at_most < len(items):  # `below`: the items that one child can have below it
        below *= at_most
    count = -(-len(items) // below)
    size = -(-len(items) // max(1, count))
    return [tuple(items[start : start + size]) for start in range(0, len(items), size or 1)]


class ScatterGather(Saga[Any], Generic[Request, Response]):
    """A saga that sends requests of one class and gathers the responses of another; both are dataclasses.

    Class arguments, in addition to those of Saga:
        at_most: maximum number of answers that an instance waits for. More requests are divided among sub-sagas. None:
            no maximum.
        at_once: maximum number of unanswered requests of an instance; None: no maximum. With 1, each request is sent
            after the answer to the one before. This avoids contention, and takes as long as all requests together.
            Requests that are not sent yet are part of the state.

    `Gathered` is the message with the results: `name`, and in `results` the responses in the order of their arrival.

    Raises:
        SettingsError: the declaration is invalid.
    """

    Part: ClassVar[type]
    Gathered: ClassVar[type]

    def __init_subclass__(cls, *, at_most: int | None = 100, at_once: int | None = None, **options: Any) -> None:
        request, response = _classes_of(cls)
        for name, value, least in (("at_most", at_most, 2), ("at_once", at_once, 1)):
            if value is not None and value < least:
                raise SettingsError(
                    f"The saga {cls.__name__} has {name}={value}. Use a number of at least {least}, or None."
                )
        named = options.get("name") or type_name(cls)
        cls.Part = _message(cls, named, "Part", name=str, items=GenericAlias(tuple, (request, ...)))
        cls.Gathered = _message(cls, named, "Gathered", name=str, results=GenericAlias(tuple, (response, ...)))

        @starts(cls.Part)
        def started(self: ScatterGather[Any, Any], message: Any, context: SagaContext) -> None:
            self._begin(message, context, at_most, at_once)

        @handles(response)
        def answered(self: ScatterGather[Any, Any], message: Any, context: SagaContext) -> None:
            self._take([message], context)

        @handles(cls.Gathered)
        def gathered(self: ScatterGather[Any, Any], message: Any, context: SagaContext) -> None:
            self._take(message.results, context)

        for method in (started, answered, gathered):
            setattr(cls, method.__name__, method)
        super().__init_subclass__(correlate={cls.Part: "name"}, state=_state_of(cls, request, response), **options)

    @classmethod
    def scatter(cls, context: Bus, name: str, requests: Iterable[Request], *, to: str | None = None) -> str:
        """Send the requests.

        When all are answered, the calling endpoint, or its saga if a saga calls, receives `Gathered`.

        Args:
            name: identifies this gathering among all unfinished ones, for example an order's id. It is a correlation
                value; each level of sub-sagas appends a number: "A1", "A1.17".
            to: the queue of the endpoint that hosts this saga; by default the calling endpoint.
        """
        return context.send(cls.Part(name, tuple(requests)), to=to or context.endpoint.queue)

    def combine(self, results: list[Response]) -> list[Response]:
        """Return the results to pass on; may be overridden to reduce them. The default returns all of them."""
        return results

    def _begin(self, part: Any, context: SagaContext, at_most: int | None, at_once: int | None) -> None:
        if self.state.awaits:
            raise InvalidMessage(
                f"{type(self).__name__} already gathers for {part.name!r}. Give each gathering a unique name."
            )
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
    raise SettingsError(
        f"The saga {cls.__name__} has no message classes. Write class X(ScatterGather[Request, Response]) with two "
        "dataclasses."
    )


def _message(cls: type, saga: str, called: str, /, **fields: Any) -> type:
    made = dataclasses.make_dataclass(called, fields.items(), frozen=True, namespace={"__module__": cls.__module__})
    return message_type(f"{saga}.{called}")(made)


def _state_of(cls: type, request: type, response: type) -> type:
    """Return the class of the state: the number of awaited answers, the requests to send, and the results so far."""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        ("name", str),
        ("awaits", int, dataclasses.field(default=0)),
    ]
    for name, kind in (("waiting", request), ("results", response)):
        fields.append((name, GenericAlias(list, (kind,)), dataclasses.field(default_factory=list)))
    return dataclasses.make_dataclass(f"{cls.__name__}State", fields, namespace={"__module__": cls.__module__})
