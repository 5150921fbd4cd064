"""Declare an endpoint: its options, handlers, sagas, routes and subscriptions.

`EndpointDeclaration` holds what an author writes down. It starts nothing and opens no connection. `endpoint.Endpoint`
adds what runs. Provisioning and hosting read declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from math import ceil
from typing import Any, Literal, TypeVar

from rowpost.endpoint.options import EndpointOptions, check_receive
from rowpost.errors import InvalidMessage, SettingsError, UnexpectedReply
from rowpost.handling.audit import not_audited as find_not_audited
from rowpost.handling.checks import OWN_NAMES, CheckFunction, CustomCheck
from rowpost.handling.event_loop import is_async
from rowpost.handling.handlers import Handle, HandlerRegistry, RegisteredHandler, check_runs, name_of
from rowpost.handling.hooks import CriticalErrorHook
from rowpost.handling.schedules import Schedule, due_times, schedule_of
from rowpost.handling.sending import AroundSend
from rowpost.handling.surroundings import Around, Surroundings
from rowpost.outbox.declaration import Outbox
from rowpost.pipeline.lease import LEASE_SECONDS
from rowpost.recoverability.policy import Host, Recoverability
from rowpost.sagas.declaration import Saga
from rowpost.sagas.hosted import HostedSagas
from rowpost.settings.due_times import Missed
from rowpost.settings.environment import EndpointSettings, SagaSettings, Settings
from rowpost.wire.address import Address, Naming, endpoint_name, parse_address
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES
from rowpost.wire.message import Message
from rowpost.wire.message_types import (
    check_kind,
    find_class,
    named_types,
    split_enclosed_types,
    type_key,
    type_name,
    type_names,
)
from rowpost.wire.return_codes import as_expected, read_return_code
from rowpost.wire.serialization import Serializers

__all__ = ["EndpointDeclaration"]

#: a handler, whose own type a checker keeps
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Around = TypeVar("_Around", bound=Around)
_AroundSend = TypeVar("_AroundSend", bound=AroundSend)
_Hook = TypeVar("_Hook", bound=Callable[[], Any])
_CriticalErrorHook = TypeVar("_CriticalErrorHook", bound=CriticalErrorHook)
_Provider = TypeVar("_Provider", bound=Callable[[], Any])
_Scheduled = TypeVar("_Scheduled", bound=Callable[[datetime], Any])


class EndpointDeclaration:
    """What an endpoint is. For the arguments and errors see `options.EndpointOptions`."""

    def __init__(self, options: EndpointOptions) -> None:
        self.options = options
        self.name, self.instance, self.send_only = endpoint_name(options.name), options.instance, options.send_only
        self.default_schema: str | None = None
        self.transaction_mode = options.transaction_mode
        self.participants: Mapping[str, str] = dict(options.participants or {})
        self.outbox = Outbox(options.outbox) if isinstance(options.outbox, str) else options.outbox
        self._reply_to = (
            frozenset(options.reply_to)
            if options.reply_to is not None and options.reply_to != "registered"
            else options.reply_to
        )
        self._take_names(None, options.audit_queue)
        self.not_audited = None if options.not_audited is None else find_not_audited(self.name, options.not_audited)
        self.recoverability = options.recoverability or Recoverability()
        self.serializers = Serializers(*options.serializers)
        self.headers: Mapping[str, str | None] = dict(options.headers or {})
        self.host = Host.here(self.name, None, options.error_headers)
        self._handlers = HandlerRegistry(self.name, self.serializers)
        #: functions around handlers and sends, the resources that handlers ask for, and the hooks of worker processes
        self.surroundings = Surroundings(self.name)
        self.sends_through: Sequence[AroundSend] = self.surroundings.sends
        self._sagas = HostedSagas(
            self.name, self.transaction_mode, self.surroundings, outbox=self.outbox.database if self.outbox else ""
        )
        #: those of the code, and with them those of the environment
        self._routes: dict[str, str] = {}
        self._all_routes: dict[str, str] = {}
        self._environment = EndpointSettings(self.name)
        #: what the supervisor reports to ServiceControl
        self.checks: list[CustomCheck] = []
        self.schedules: list[Schedule] = []
        self._subscriptions: set[str] = set()
        self._expected: dict[str, type] = {}

    @property
    def leases(self) -> bool:
        """Whether the endpoint leases its messages, `receive="lease"`."""
        return self.options.receive == "lease"

    @property
    def needs_leases(self) -> bool:
        """Whether the endpoint leases its messages, or those of some types."""
        return self.leases or self._handlers.leases_some

    def leases_message(self, message: Message) -> bool:
        """Return whether a message is to be leased, although the endpoint does not lease all of them."""
        return self._handlers.leases(message)

    @property
    def lease_seconds(self) -> int:
        """The time of a lease, rounded up."""
        return LEASE_SECONDS if self.options.lease_time is None else ceil(self.options.lease_time.total_seconds())

    def __repr__(self) -> str:
        return f"Endpoint({self.name!r})"

    def handles(
        self,
        message: str | type,
        cls: type | None = None,
        *,
        subscribe: bool = False,
        receive: Literal["transaction", "lease"] | None = None,
    ) -> Callable[[_Function], _Function]:
        """Declare a handler for a message type. Used as a decorator, which returns the function as it is.

        Args:
            message: a message class, named by `message_type`; or the full name of the type in headers, without assembly
                and version.
            cls: with a name: the class that bodies are decoded to. None passes the raw body, as `bytes`.
            subscribe: the type is another endpoint's event. The endpoint subscribes to it when it starts.
            receive: "lease" leases the messages of this type, although the endpoint's others are handled in a
                transaction. None: as the endpoint does. If a type has several handlers, one of them suffices.

        Raises:
            SettingsError: it is neither a class nor a name, or a class that no sender could name; the function does
                not take a message and a context, or is a generator, which is never run; it is async in the mode
                `transaction_scope`; `subscribe` is given for a command; or the endpoint cannot lease.
        """
        name, decoded = self._handled(message, cls)
        check_receive(self.options, receive, f"the type {name}", sagas=bool(self._sagas.tables))

        def declare(function: _Function) -> _Function:
            self._check_handler(function)
            if subscribe:
                self._subscribe(name, decoded)
            self._handlers.add(
                RegisteredHandler(name, decoded, function, leased=receive == "lease", surroundings=self.surroundings)
            )
            return function

        return declare

    def _handled(self, message: Any, cls: type | None) -> tuple[str, type]:
        """Return the name of what a handler is declared for, and the class that its bodies are decoded to."""
        if isinstance(message, str):
            return message, bytes if cls is None else cls
        if not isinstance(message, type) or cls is not None:
            raise SettingsError(
                f"handles() of {self.name} takes a message class alone, as in handles(PlaceOrder), or the full name of "
                "a type and then the class, as in handles('Shop.Messages.PlaceOrder', PlaceOrder)."
            )
        try:
            return named_types(message)[0], message
        except InvalidMessage as error:
            raise SettingsError(f"handles() of {self.name}: {error}") from error

    def handles_everything(self, function: _Function) -> _Function:
        """Declare a handler for the messages of all types, which the endpoint then handles. Used as a decorator.

        It gets an instance of the message's class if the program knows the class: by `message_type`, or because the
        endpoint has a handler of it. Otherwise it gets the body as `bytes`. Control messages are not handled. Nothing
        is subscribed to.

        Raises:
            SettingsError: as `handles`.
        """
        self._check_handler(function)
        self._handlers.add(RegisteredHandler("", object, function, surroundings=self.surroundings))
        return function

    def around(self, function: _Around) -> _Around:
        """Surround each call of a handler with a function. Used as a decorator.

        It is called with the message, its context, and a function without arguments that runs the handler, and returns
        what that returns. It runs in the message's transaction: what it writes and sends commits with the message, and
        an error that it raises fails the attempt. A plain function surrounds plain handlers, and an `async def` one
        surrounds `async def` handlers, and awaits `proceed()`. Methods of sagas are handlers here: the context is a
        saga's. The first function that is declared is the outermost.

        Raises:
            SettingsError: it does not take these arguments.
        """
        what = f"The function {name_of(function)} around handlers of {self.name}"
        check_runs(function, SettingsError, what, takes=("message", "context", "proceed"), may_be_async=True)
        self.surroundings.declare(function)
        return function

    def around_sends(self, function: _AroundSend) -> _AroundSend:
        """Surround each message that the endpoint sends, publishes or replies with a function. Used as a decorator.

        It is called where the message is sent, also by sagas and outside of handlers, with the message, a `Sending`
        with its headers, which it may change, and a function without arguments that sends it. It is a plain function,
        also for `async def` handlers. Forwarded messages and copies are not surrounded.

        Raises:
            SettingsError: it does not take these arguments, or is async.
        """
        what = f"The function {name_of(function)} around sends of {self.name}"
        check_runs(function, SettingsError, what, takes=("message", "sending", "proceed"))
        self.surroundings.sends.append(function)
        return function

    def at_start(self, function: _Hook) -> _Hook:
        """Run a function in each worker process before its first message of the endpoint. Used as a decorator.

        Functions run in the order of their declaration; they may be async. While one fails, no message is received, and
        it is tried again. `process_one` and tests do not run them.

        Raises:
            SettingsError: the function takes arguments.
        """
        return self._hook("start", function)

    def at_stop(self, function: _Hook) -> _Hook:
        """Run a function when a worker process ends, behind its last message and before what handlers share ends. Used
        as a decorator.

        The last one that is declared runs first. A process that is killed runs none.

        Raises:
            SettingsError: the function takes arguments.
        """
        return self._hook("stop", function)

    def _hook(self, when: Literal["start", "stop"], function: _Hook) -> _Hook:
        what = f"The function {name_of(function)} at the {when} of {self.name}"
        check_runs(function, SettingsError, what, takes=(), may_be_async=True)
        self.surroundings.hooks.declare(when, function, name_of(function))
        return function

    def at_critical_error(self, function: _CriticalErrorHook) -> _CriticalErrorHook:
        """Call a function for each critical event of the endpoint's queue. Used as a decorator.

        The supervisor calls it, in a thread of its own, with the queue's name and with what is wrong, in words: the
        database cannot be reached for a while, a message cannot be moved, no worker can run. To end `rowpost run`, it
        may send its process SIGTERM.

        Raises:
            SettingsError: it does not take these arguments, or is async.
        """
        what = f"The function {name_of(function)} at critical errors of {self.name}"
        check_runs(function, SettingsError, what, takes=("queue", "error"))
        self.surroundings.hooks.at_critical_error.append(function)
        return function

    def provides(self, kind: type) -> Callable[[_Provider], _Provider]:
        """Declare what makes a resource that handlers share: one for each process, from its first use on.

        Used as a decorator of a generator that yields the resource once, and ends it behind that; or of a function that
        returns it. Both may be async. A handler gets the resource for an argument of this class, behind the message and
        the context: `def charge(message, context, client: Client)`.

        Args:
            kind: the class.

        Raises:
            SettingsError: it is no class, has a provider already, or the provider takes arguments.
        """

        def declare(provider: _Provider) -> _Provider:
            self.surroundings.resources.declare(kind, provider)
            return provider

        return declare

    def _check_handler(self, function: Handle) -> None:
        what = f"The handler {name_of(function)} of {self.name}"
        wanted = self.surroundings.add(function, name_of(function))
        check_runs(function, SettingsError, what, may_be_async=True, injected=wanted)
        if self.transaction_mode == "transaction_scope" and is_async(function):
            raise SettingsError(
                f"The handler {name_of(function)} of {self.name} is async, and in the mode transaction_scope handlers "
                "are plain functions: the connections of participants block. Use a plain function, or another mode."
            )

    def check(
        self, name: str, *, every: timedelta | None = None, category: str = ""
    ) -> Callable[[CheckFunction], CheckFunction]:
        """Declare a check, whose result the supervisor reports to ServiceControl. Used as a decorator.

        The function has no arguments. It returns None if all is well, or else what is wrong. An error that it raises is
        a failure too.

        Args:
            name: identifies the check.
            every: the time between two executions; None executes it once, when the supervisor starts.
            category: under which ServicePulse shows the check; the endpoint's name if it is empty.

        Raises:
            SettingsError: the endpoint or rowpost has a check of this name, `every` is not positive, or the function
                has arguments or is async or a generator.
        """
        if name in OWN_NAMES:
            raise SettingsError(
                f"{name!r} is the name of a check that rowpost brings. Give the check of {self.name} another name."
            )
        if any(each.name == name for each in self.checks):
            raise SettingsError(f"{self.name} has two checks named {name!r}. Give one of them another name.")
        if every is not None and every <= timedelta(0):
            raise SettingsError(
                f"The check {name!r} of {self.name} cannot run every {every}. Use a positive time, or leave it out to "
                "run it once."
            )

        def declare(function: CheckFunction) -> CheckFunction:
            check_runs(function, SettingsError, f"The check {name!r} of {self.name}", takes=())
            self.checks.append(CustomCheck(name, category or self.name, every, function))
            return function

        return declare

    def every(
        self,
        due: str | timedelta,
        *,
        zone: str = "UTC",
        missed: Missed = "once",
        to: str | None = None,
        name: str | None = None,
    ) -> Callable[[_Scheduled], _Scheduled]:
        """Declare a schedule: a message that is sent at due times, each once. Used as a decorator.

        The function is called with the due time, in UTC, and returns the message, or None for none. Its annotation says
        which class that is. It may be called again for the same due time if the transaction of the message fails, so it
        changes nothing. `rowpost apply` stores the schedule, and the supervisors that run the endpoint send its
        messages.

        Args:
            due: a cron expression of five fields, or the time between two messages.
            zone: the time zone of the cron expression, such as Europe/Berlin.
            missed: what becomes of due times at which no supervisor ran: "once" sends one message for the last of them,
                "all" one for each, and "skip" none for those that are more than a minute old.
            to: name or address of the destination; None for the endpoint's own queue.
            name: identifies the schedule in the database; None for the names of the endpoint and the function, as in
                Reports.nightly.

        Raises:
            SettingsError: the due times cannot be read, the endpoint is send-only or has a schedule of this name, the
                function takes other arguments or is async or a generator, or its annotation is not a class of a message
                that can be sent.
        """
        times = due_times(due, zone, f"A schedule of {self.name}")
        if self.send_only:
            raise SettingsError(
                f"{self.name} cannot have a schedule: it is send-only, so that no supervisor runs it. Declare the "
                "schedule of an endpoint with a queue, with to=…."
            )

        def declare(function: _Scheduled) -> _Scheduled:
            made = schedule_of(self.name, function, name, times, missed, to)
            if any(each.name == made.name for each in self.schedules):
                raise SettingsError(f"{self.name} has two schedules named {made.name!r}. Give one another: name='…'.")
            self.schedules.append(made)
            return function

        return declare

    def saga(self, saga: type[Saga[Any]]) -> type[Saga[Any]]:
        """Host a saga: its methods handle their messages in this endpoint. Also used as a decorator of the class.

        Raises:
            SettingsError: its table belongs to another saga, the endpoint's mode cannot keep its state, the endpoint
                leases its messages, or the saga subscribes to a command.
        """
        if self.needs_leases:
            raise SettingsError(
                f"{self.name} cannot host the saga {saga.__name__}: with receive='lease' no transaction keeps the "
                "saga's instance locked while a handler works. Host it in an endpoint without receive='lease', and "
                "send it the result."
            )
        for handler, topic in self._sagas.host(saga):
            if topic is not None:
                self._subscribe(topic, handler.cls)
            self._handlers.add(handler)
        return saga

    def _subscribe(self, topic: str, cls: type) -> None:
        for each in (cls, find_class(topic)):
            check_kind(each or cls, "Subscribe", SettingsError)
        self._subscriptions.add(topic)

    def _take_names(self, naming: Naming | None, audit: str | None) -> None:
        """Give the names of the declaration the schema that an environment means; None for the engine's own default."""
        self._naming = naming
        self.default_schema = None if naming is None else naming.schema
        error = self.options.error_queue
        #: the endpoint's queue
        self.queue = self.resolve(self.options.queue or self.options.name)
        for computed in ("address", "reply_address"):  # when they are asked for
            vars(self).pop(computed, None)
        self.error_queue = self.resolve(error)
        self.audit_queue = None if audit is None else EndpointDeclaration.resolve(self, audit)

    def resolve(self, name: str) -> str:
        """Return a queue's name that somebody wrote, with the schema that the environment means.

        Raises InvalidQueueName.
        """
        return name if self._naming is None else self._naming.resolve(name)

    def configure(self, settings: Settings) -> None:
        """Take what an environment says about this endpoint: its host, its routes, and the schema of names that have
        none.

        `rowpost run` and `callbacks` do this. A program that sends without them calls it once.

        Raises:
            SettingsError: the environment routes a type elsewhere than the code does.
        """
        self._environment = settings.endpoint(self.name)
        self._take_names(settings.naming, self.audit_queue_in(settings))
        self.host = Host.here(self.name, settings.host_of(self.name), self.options.error_headers)
        for name, to in self._routes.items():
            self._check_route(name, to)
        self._all_routes = {**dict(self._environment.routes), **self._routes}

    def audit_queue_in(self, settings: Settings) -> str | None:
        """Return where an environment has copies of the endpoint's handled messages stored; None: nowhere.

        Raises SettingsError: its key for this endpoint contradicts the code.
        """
        ours, theirs = self.options.audit_queue, settings.endpoint(self.name).audit_queue
        if ours and theirs and ours != theirs:
            raise SettingsError(
                f"{self.name} cannot audit twice: its code names {ours!r}, and endpoints.{self.name}.audit_queue "
                f"in the environment's file {theirs!r}. Remove one of the two."
            )
        return ours or theirs or settings.audit_queue

    @cached_property
    def address(self) -> Address:
        """The address of the endpoint's queue. Raises InvalidQueueName."""
        return parse_address(self.queue)

    @cached_property
    def reply_address(self) -> Address | None:
        """The address that gets replies; None if the endpoint only sends and names none. Raises InvalidQueueName."""
        given = self.options.reply_address
        if given is not None:
            return parse_address(self.resolve(given))
        return None if self.send_only else self.address

    @property
    def instance_queue(self) -> str | None:
        """The name of the queue that belongs to this process alone; None without an `instance`."""
        return self.instance and replace(self.address, table=f"{self.address.table}.{self.instance}").format()

    @property
    def sagas(self) -> tuple[SagaSettings, ...]:
        """The tables that the endpoint's sagas need, in the schema that the environment means.

        That of an outbox is in the default schema of the business database.
        """
        found = self._sagas.tables
        return found if self.outbox else tuple(replace(each, name=self.resolve(each.name)) for each in found)

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
                f"{self.name} cannot route {name}: its code sends it to {to!r}, and endpoints.{self.name}.routes in "
                f"the environment's file to {theirs!r}. Remove one of the two routes."
            )

    def route_of(self, cls: type) -> str:
        """Return the destination of a message class, by its own name or by one of its base classes', in code or in the
        environment.

        The routes of types come first, then those of namespaces, which only an environment has.

        Raises:
            InvalidMessage: there is no route, or the class has no name that a receiver can know.
        """
        names = type_names(cls)
        for name in (*names, *(f"{name.rpartition('.')[0]}.*" for name in names)):
            if name in self._all_routes:
                return self._all_routes[name]
        named_types(cls)
        check_kind(cls, "Send")
        raise InvalidMessage(
            f"{self.name} cannot send a {type_name(cls)}: it has no destination. Give one with to=…, or declare a "
            f"route: endpoint.route({cls.__name__}, …), or endpoints.{self.name}.routes in the environment's file."
        )

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """The topics that the endpoint subscribes to when it starts."""
        return tuple(sorted(self._subscriptions))

    def typed(self, message: Message, expected: type | None = None) -> Any:
        """Return a reply decoded to its class, an int if it is a number or an enum, or its bytes.

        Raises MessageNotDeserialized, and UnexpectedReply if it is not of the class `expected`.
        """
        code = read_return_code(message.headers)
        if code is not None:
            return as_expected(code, expected)
        if expected is bytes:
            return message.body
        names = [*split_enclosed_types(message.headers.get(ENCLOSED_MESSAGE_TYPES))]
        own = {} if expected is None else {type_key(type_name(expected)): expected}
        for key, name in zip(map(type_key, names), names, strict=True):
            cls = own.get(key) or self._expected.get(key) or find_class(name)
            if cls is not None and issubclass(cls, expected or object):
                return self._handlers.decode(message, cls)
        if expected is None:
            return message.body
        raise UnexpectedReply(
            f"The request expects a reply of {type_name(expected)}, and got {', '.join(names) or 'one without a type'}."
        )
