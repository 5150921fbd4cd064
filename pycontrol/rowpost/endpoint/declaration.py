"""Declare an endpoint: its options, handlers, sagas, routes and subscriptions.

`Declaration` holds what an author writes down. It starts nothing and opens no connection. `endpoint.Endpoint` adds what runs.
Provisioning and hosting read declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

from rowpost.errors import InvalidMessage, SettingsError
from rowpost.handling.audit import NotAudited
from rowpost.handling.audit import not_audited as find_not_audited
from rowpost.handling.checks import OWN_NAMES, Check, CheckFunction
from rowpost.handling.handlers import Handle, HandlerRegistry, RegisteredHandler, check_runs, name_of
from rowpost.outbox.operations import Outbox
from rowpost.recoverability.policy import Host, Recoverability
from rowpost.sagas.declaration import Saga
from rowpost.sagas.hosted import HostedSagas
from rowpost.settings.compat import StrategyName
from rowpost.settings.environment import EndpointSettings, SagaSettings, Settings
from rowpost.settings.worker import LARGEST_LIMIT, STRATEGIES, check_batch
from rowpost.transactions.scope import MODES
from rowpost.wire.address import Address, Naming, parse_address
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES
from rowpost.wire.message import Message
from rowpost.wire.message_types import find_class, named_types, split_enclosed_types, type_key, type_name, type_names
from rowpost.wire.return_codes import read_return_code
from rowpost.wire.serialization import Serializer, Serializers

__all__ = ["MODES", "Declaration"]


class Declaration:
    """What an endpoint is. For the arguments see `endpoint.Endpoint`.

    Raises:
        SettingsError: there is no such mode, strategy or batch, the limit is not from 1 to 10,000, or the mode does not allow an outbox.
    """

    def __init__(
        self,
        name: str,
        *,
        transaction_mode: str = "sends_atomic_with_receive",
        participants: Mapping[str, str] | None = None,
        outbox: Outbox | str | None = None,
        error_queue: str = "error",
        audit_queue: str | None = None,
        audit_time_to_be_received: timedelta | None = None,
        not_audited: Iterable[str] | NotAudited | None = None,
        recoverability: Recoverability | None = None,
        serializers: Iterable[Serializer] = (),
        send_only: bool = False,
        limit: int | None = None,
        strategy: StrategyName | None = None,
        instance: str | None = None,
        time_limit: timedelta | None = None,
        batch: str | int | None = None,
        reply_to: Literal["registered"] | Iterable[str] | None = None,
        takes_subscriptions: bool = False,
    ) -> None:
        _check(name, transaction_mode, strategy, limit, batch, has_outbox=outbox is not None)
        _check_subscriptions(name, takes_subscriptions, send_only)
        self.name = name
        self.default_schema: str | None = None
        self.outbox = Outbox(outbox) if isinstance(outbox, str) else outbox
        self.batch = batch
        self.reply_to = _reply_addresses(name, reply_to)
        self.takes_subscriptions = takes_subscriptions
        self.limit = limit
        self.strategy = strategy
        self.instance = instance
        self.time_limit = time_limit
        self.transaction_mode = transaction_mode
        self.participants: Mapping[str, str] = dict(participants or {})
        self._copies = (error_queue, audit_queue)
        self._take_names(None)
        self.audit_time_to_be_received = audit_time_to_be_received
        self.not_audited = None if not_audited is None else find_not_audited(name, not_audited, audit_queue)
        self.recoverability = recoverability or Recoverability()
        if self.recoverability.policy is not None:
            check_runs(self.recoverability.policy, SettingsError, f"The recoverability policy of {name}", takes=("failure",))
        if callable(not_audited):
            check_runs(not_audited, SettingsError, f"not_audited of {name}", takes=("headers",))
        self.serializers = Serializers(*serializers)
        self.send_only = send_only
        self.host = Host.here(name)
        self._handlers = HandlerRegistry(name, self.serializers)
        self._declare_nothing()
        self._sagas = HostedSagas(name, transaction_mode, has_outbox=outbox is not None)

    def _declare_nothing(self) -> None:
        #: those of the code, and with them those of the environment
        self._routes: dict[str, str] = {}
        self._all_routes: dict[str, str] = {}
        self._environment = EndpointSettings(self.name)
        #: what the supervisor reports to ServiceControl
        self.checks: list[Check] = []
        self._subscriptions: set[str] = set()
        self._expected: dict[str, type] = {}

    def __repr__(self) -> str:
        return f"Endpoint({self.name!r})"

    def handles(self, type_name: str, cls: type = bytes, *, subscribe: bool = False) -> Callable[[Handle], Handle]:
        """Declare a handler for a message type. Used as a decorator.

        Args:
            type_name: full name of the type in headers, without assembly and version.
            cls: the class that bodies are decoded to; `bytes` passes the raw body.
            subscribe: the type is another endpoint's event. The endpoint subscribes to it when it starts.

        Raises:
            SettingsError: the name is no text, or the function does not take a message and a context, or is async or a generator, which is
                never run.
        """
        if not isinstance(type_name, str):
            raise SettingsError(f"handles() of {self.name} takes the full name of a message type first, as a text, and then the class.")

        def declare(function: Handle) -> Handle:
            check_runs(function, SettingsError, f"The handler {name_of(function)} of {self.name}")
            self._handlers.add(RegisteredHandler(type_name, cls, function))
            if subscribe:
                self._subscriptions.add(type_name)
            return function

        return declare

    def check(self, name: str, *, every: timedelta | None = None, category: str = "") -> Callable[[CheckFunction], CheckFunction]:
        """Declare a check, whose result the supervisor reports to ServiceControl. Used as a decorator.

        The function has no arguments. It returns None if all is well, or else what is wrong. An error that it raises is a failure too.

        Args:
            name: identifies the check.
            every: the time between two executions; None executes it once, when the supervisor starts.
            category: under which ServicePulse shows the check; the endpoint's name if it is empty.

        Raises:
            SettingsError: the endpoint or rowpost has a check of this name, `every` is not positive, or the function has arguments or is async or a
                generator.
        """
        if name in OWN_NAMES:
            raise SettingsError(f"{name!r} is the name of a check that rowpost brings. Give the check of {self.name} another name.")
        if any(each.name == name for each in self.checks):
            raise SettingsError(f"{self.name} has two checks named {name!r}. Give one of them another name.")
        if every is not None and every <= timedelta(0):
            raise SettingsError(f"The check {name!r} of {self.name} cannot run every {every}. Use a positive time, or leave it out to run it once.")

        def declare(function: CheckFunction) -> CheckFunction:
            check_runs(function, SettingsError, f"The check {name!r} of {self.name}", takes=())
            self.checks.append(Check(name, category or self.name, every, function))
            return function

        return declare

    def saga(self, saga: type[Saga[Any]]) -> type[Saga[Any]]:
        """Host a saga: its methods handle their messages in this endpoint. Also used as a decorator of the class.

        Raises:
            SettingsError: its table belongs to another saga, or the endpoint's mode cannot keep its state.
        """
        for handler, topic in self._sagas.host(saga):
            self._handlers.add(handler)
            if topic is not None:
                self._subscriptions.add(topic)
        return saga

    def _take_names(self, naming: Naming | None) -> None:
        """Give the names of the declaration the schema that an environment means; None for the engine's own default."""
        self._naming = naming
        self.default_schema = None if naming is None else naming.schema
        error, audit = self._copies
        #: the endpoint's queue
        self.queue = self.resolve(self.name)
        self.error_queue = self.resolve(error)
        self.audit_queue = None if audit is None else self.resolve(audit)

    def resolve(self, name: str) -> str:
        """Return a queue's name that somebody wrote, with the schema that the environment means. Raises InvalidQueueName."""
        return name if self._naming is None else self._naming.resolve(name)

    def configure(self, settings: Settings) -> None:
        """Take what an environment says about this endpoint: its host, its routes, and the schema of names that have none.

        `rowpost run` and `callbacks` do this. A program that sends without them calls it once.

        Raises:
            SettingsError: the environment routes a type elsewhere than the code does.
        """
        self._take_names(settings.naming)
        self.host = Host.here(self.name, settings.host_of(self.name))
        self._environment = settings.endpoint(self.name)
        for name, to in self._routes.items():
            self._check_route(name, to)
        self._all_routes = {**dict(self._environment.routes), **self._routes}

    @property
    def address(self) -> Address:
        """The address of the endpoint's queue. Raises InvalidQueueName."""
        return parse_address(self.queue)

    @property
    def sagas(self) -> tuple[SagaSettings, ...]:
        """The tables that the endpoint's sagas need, in the schema that the environment means."""
        return tuple(replace(each, name=self.resolve(each.name)) for each in self._sagas.tables)

    def expects(self, *classes: type) -> None:
        """Declare classes of replies. Classes with a `@message_type` need no declaration."""
        self._expected.update((type_key(type_name(cls)), cls) for cls in classes)

    def route(self, cls: type, to: str) -> None:
        """Declare the destination of messages of a class that are sent without one.

        Raises:
            SettingsError: the environment routes the class elsewhere.
        """
        self._check_route(type_name(cls), to)
        self._routes[type_name(cls)] = self._all_routes[type_name(cls)] = to

    def _check_route(self, name: str, to: str) -> None:
        theirs = dict(self._environment.routes).get(name)
        if theirs is not None and theirs != to:
            raise SettingsError(
                f"{self.name} cannot route {name}: its code sends it to {to!r}, and endpoints.{self.name}.routes in the environment's file to "
                f"{theirs!r}. Remove one of the two routes."
            )

    def route_of(self, cls: type) -> str:
        """Return the destination of a message class, by its own name or by one of its base classes', in code or in the environment.

        The routes of types come first, then those of namespaces, which only an environment has.

        Raises:
            InvalidMessage: there is no route, or the class has no name that a receiver can know.
        """
        names = type_names(cls)
        for name in (*names, *(f"{name.rpartition('.')[0]}.*" for name in names)):
            if name in self._all_routes:
                return self._all_routes[name]
        named_types(cls)
        raise InvalidMessage(
            f"{self.name} cannot send a {type_name(cls)}: it has no destination. Give one with to=…, or declare a route: "
            f"endpoint.route({cls.__name__}, …), or endpoints.{self.name}.routes in the environment's file."
        )

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """The topics that the endpoint subscribes to when it starts."""
        return tuple(sorted(self._subscriptions))

    def typed(self, message: Message) -> Any:
        """Return a reply decoded to its class, an int if it is a number or an enum, or its bytes. Raises MessageNotDeserialized."""
        code = read_return_code(message.headers)
        if code is not None:
            return code
        for name in split_enclosed_types(message.headers.get(ENCLOSED_MESSAGE_TYPES)):
            cls = self._expected.get(type_key(name)) or find_class(name)
            if cls is not None:
                return self._handlers.decode(message, cls)
        return message.body


def _check(name: str, mode: str, strategy: str | None, limit: int | None, batch: str | int | None, *, has_outbox: bool) -> None:
    """Check the options of an endpoint.

    Raises:
        SettingsError: there is no such mode, strategy or batch, the limit is not from 1 to 10,000, or the mode does not allow an outbox.
    """
    if mode not in MODES:
        raise SettingsError(f"The endpoint {name!r} cannot have the mode {mode!r}: there is no such mode. Use one of: {', '.join(MODES)}.")
    if strategy is not None and strategy not in STRATEGIES:
        raise SettingsError(
            f"The endpoint {name!r} cannot have the strategy {strategy!r}: there is no such strategy. Use one of: {', '.join(STRATEGIES)}."
        )
    if limit is not None and not 1 <= limit <= LARGEST_LIMIT:
        raise SettingsError(f"The endpoint {name!r} cannot have the limit {limit}: a queue has from 1 to {LARGEST_LIMIT:,} workers.")
    if batch is not None:
        check_batch(batch)
    if has_outbox:
        _check_outbox_mode(name, mode)


def _reply_addresses(name: str, reply_to: str | Iterable[str] | None) -> str | frozenset[str] | None:
    if isinstance(reply_to, str) and reply_to != "registered":
        raise SettingsError(f'The endpoint {name!r} cannot have reply_to={reply_to!r}. Write "registered", or a list: [{reply_to!r}].')
    return reply_to if reply_to is None or isinstance(reply_to, str) else frozenset(reply_to)


def _check_subscriptions(name: str, taken: bool, send_only: bool) -> None:
    if taken and send_only:
        raise SettingsError(f"The endpoint {name!r} cannot take subscriptions: it only sends and has no queue. Leave out one of the two.")


def _check_outbox_mode(endpoint: str, mode: str) -> None:
    """Check that an outbox is used in mode `receive_only`. Raises SettingsError."""
    reasons = {
        "none": "the message is removed before it is handled, so that after a crash nothing would send what the outbox contains",
        "sends_atomic_with_receive": "what is sent commits with the removal of the message already, and would be sent twice",
        "transaction_scope": "the business database commits together with the message, and needs no outbox",
    }
    if mode in reasons:
        raise SettingsError(
            f"The endpoint {endpoint!r} has an outbox and the transaction mode {mode}, in which {reasons[mode]}. "
            "An outbox needs transaction_mode='receive_only'. Without an outbox, omit outbox=."
        )
