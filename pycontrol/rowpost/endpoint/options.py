"""The options of an endpoint: `EndpointOptions` declares each of them once, with its default and its checks.

`Endpoint` takes them as keyword arguments. `takes_options` gives its `__init__` their signature, so that editors and
type checkers know it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from functools import update_wrapper
from typing import Any, Concatenate, Literal, ParamSpec

from rowpost.errors import SettingsError
from rowpost.handling.arguments import check_headers
from rowpost.handling.audit import NotAudited
from rowpost.handling.handlers import check_runs
from rowpost.outbox.declaration import Outbox
from rowpost.recoverability.error_headers import ErrorHeaders
from rowpost.recoverability.policy import Recoverability
from rowpost.settings.compat import StrategyName
from rowpost.settings.worker import LARGEST_CONCURRENCY, LARGEST_LIMIT, STRATEGIES, check_batch
from rowpost.transactions.scope import MODES
from rowpost.wire.headers import W3C_TRACE
from rowpost.wire.serialization import Serializer

__all__ = ["EndpointOptions", "check_receive", "takes_options"]

_Options = ParamSpec("_Options")
#: how messages may be received
RECEIVES = ("transaction", "lease")

#: how the names begin of headers that mean something to NServiceBus and ServiceControl
_RESERVED = ("NServiceBus.", "ServiceControl.", "$.diagnostics.")
#: why a mode needs no outbox, or cannot have one
_NO_OUTBOX = {
    "none": (
        "the message is removed before it is handled, so that after a crash nothing would send what the outbox contains"
    ),
    "sends_atomic_with_receive": (
        "what is sent commits with the removal of the message already, and would be sent twice"
    ),
    "transaction_scope": "the business database commits together with the message, and needs no outbox",
}


@dataclass(frozen=True)
class EndpointOptions:
    """What the author of an endpoint decides.

    Attributes:
        name: the name of the endpoint and its queue, also in subscriptions and diagnostics. With a schema, as in
            `Billing@[nsb]`, it is the queue's: the endpoint's name is `Billing`.
        transaction_mode: one of MODES.
        receive: "lease" for handlers that take long: no transaction is open and no connection is held while a handler
            works, see `pipeline.lease`. Needs the mode `sends_atomic_with_receive`, and `lease: true` at the queue.
        lease_time: with "lease": so long after a process was killed, stopped or cut off, another one takes its message;
            None for a minute.
        participants: for mode `transaction_scope`: URLs by name of databases that may take part, `${VARIABLE}` for
            secrets. On SQL Server: names of databases, see `transactions.scope`. The environment's participants are
            added.
        outbox: the business database, if it is not the queue's database: a name or an `Outbox`. Needs mode
            `receive_only`.
        error_queue: where messages go that cannot be handled.
        audit_queue: where copies of handled messages go; None for no audit.
        audit_time_to_be_received: copies in the audit queue expire after this time; None if they do not.
        not_audited: messages without such a copy: full names of their types, or a function of the headers that returns
            True for them.
        queue: name or address of the endpoint's queue; None for that of its name.
        reply_address: name or address of the queue that gets the replies to all that the endpoint sends; None for its
            own queue. `send(…, reply_to=…)` names another one for a message.
        recoverability: how often and when a failing message is retried.
        error_headers: returns the headers of a copy in the error queue. It gets those that rowpost has made, and the
            error. If it fails, they stay as they are.
        serializers: by content type. The first one is the default; JSON if none is given.
        headers: are added to each message that the endpoint sends, publishes or replies, also delayed and by its sagas;
            not to forwarded messages and copies. Those of the call come first. Names that rowpost or a trace writes
            are refused.
        send_only: the endpoint has no queue; it only sends and publishes.
        limit: how many messages are handled at the same time at most; None uses the environment's setting.
        concurrency: how many of them a worker process handles: as tasks of `async def` handlers, or in threads; None
            uses the environment's setting.
        strategy: how workers are started and stopped: fixed, adaptive or peek; None uses the environment's setting.
        instance: names this process among those of the endpoint. Its own queue, `<queue>.<instance>`, is received from
            with all handlers, see `endpoint.callbacks`.
        time_limit: a handler that runs longer is killed together with its worker process, which is a failed attempt.
            None uses the environment's setting.
        batch: how many messages may share a transaction, see `pipeline.batch_size`; None uses the environment's
            setting.
        reply_to: where handlers may reply: None for every address that a message names, "registered" for queues of this
            database, or names of queues. Other replies raise ReplyRefused, and the message moves to the error queue.
        takes_subscriptions: whether Subscribe and Unsubscribe messages of endpoints without native publish and
            subscribe are followed. If not, they move to the error queue.

    Raises:
        SettingsError: there is no such mode, strategy or batch, the limit is not from 1 to 10,000, or two options
            contradict each other.
        InvalidMessage: the headers are no mapping of text to text or None.
    """

    name: str
    _: KW_ONLY
    transaction_mode: str = "sends_atomic_with_receive"
    receive: Literal["transaction", "lease"] = "transaction"
    lease_time: timedelta | None = None
    participants: Mapping[str, str] | None = None
    outbox: Outbox | str | None = None
    error_queue: str = "error"
    audit_queue: str | None = None
    queue: str | None = None
    reply_address: str | None = None
    audit_time_to_be_received: timedelta | None = None
    not_audited: Iterable[str] | NotAudited | None = None
    recoverability: Recoverability | None = None
    error_headers: ErrorHeaders | None = None
    serializers: Iterable[Serializer] = ()
    headers: Mapping[str, str | None] | None = None
    send_only: bool = False
    limit: int | None = None
    concurrency: int | None = None
    strategy: StrategyName | None = None
    instance: str | None = None
    time_limit: timedelta | None = None
    batch: str | int | None = None
    reply_to: Literal["registered"] | Iterable[str] | None = None
    takes_subscriptions: bool = False

    def __post_init__(self) -> None:
        name, mode = self.name, self.transaction_mode
        for what, given, known in (
            ("mode", mode, MODES),
            ("strategy", self.strategy or "peek", STRATEGIES),
            ("receive", self.receive, RECEIVES),
        ):
            if given not in known:
                raise SettingsError(
                    f"The endpoint {name!r} cannot have the {what} {given!r}: there is no such {what}. Use one of: "
                    f"{', '.join(known)}."
                )
        if self.limit is not None and not 1 <= self.limit <= LARGEST_LIMIT:
            raise SettingsError(
                f"The endpoint {name!r} cannot have the limit {self.limit}: a queue has from 1 to {LARGEST_LIMIT:,} "
                "workers."
            )
        if self.concurrency is not None and not 1 <= self.concurrency <= LARGEST_CONCURRENCY:
            raise SettingsError(
                f"The endpoint {name!r} cannot have the concurrency {self.concurrency}: a worker process handles from "
                f"1 to {LARGEST_CONCURRENCY:,} messages at the same time."
            )
        if self.batch is not None:
            check_batch(self.batch)
        if self.outbox is not None and mode in _NO_OUTBOX:
            raise SettingsError(
                f"The endpoint {name!r} has an outbox and the transaction mode {mode}, in which {_NO_OUTBOX[mode]}. "
                "An outbox needs transaction_mode='receive_only'. Without an outbox, omit outbox=."
            )
        asked, usual = self.recoverability or Recoverability(), Recoverability()
        retries = (asked.immediate_retries, asked.delayed_retries)
        if mode == "none" and retries not in ((0, 0), (usual.immediate_retries, usual.delayed_retries)):
            raise SettingsError(
                f"The endpoint {name!r} cannot retry in the mode none: a message is removed before it is handled, and "
                "moves to the error queue if its handler fails. Leave out the retries, or use another mode."
            )
        for option, used in (("takes_subscriptions", self.takes_subscriptions), ("queue", self.queue is not None)):
            if used and self.send_only:
                raise SettingsError(
                    f"The endpoint {name!r} is send-only and cannot have {option}=: it only sends and has no queue. "
                    "Leave out one of the two."
                )
        if isinstance(self.reply_to, str) and self.reply_to != "registered":
            raise SettingsError(
                f'The endpoint {name!r} cannot have reply_to={self.reply_to!r}. Write "registered", or a list: '
                f"[{self.reply_to!r}]."
            )
        for header in check_headers(self.headers or {}):
            if header.startswith(_RESERVED) or header in W3C_TRACE:
                raise SettingsError(
                    f"The endpoint {name!r} cannot add the header {header!r} to all its messages: rowpost writes it "
                    "for each message. Use a name of your own, such as Shop.Tenant."
                )
        self._check_lease()
        self._check_functions()

    def _check_lease(self) -> None:
        """Refuse what a lease cannot do."""
        time = self.lease_time
        if time is not None and not timedelta(seconds=1) <= time <= timedelta(days=1):
            raise SettingsError(
                f"The endpoint {self.name!r} cannot have the lease_time {time}: use a time from one second to one day."
            )
        check_receive(self, self.receive, "all its messages")

    def _check_functions(self) -> None:
        functions: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
            ("The recoverability policy", self.recoverability and self.recoverability.policy, ("failure",)),
            ("error_headers", self.error_headers, ("headers", "error")),
            ("not_audited", self.not_audited, ("headers",)),
        )
        for what, function, takes in functions:
            if callable(function):
                check_runs(function, SettingsError, f"{what} of {self.name}", takes=takes)


def check_receive(options: EndpointOptions, receive: str | None, what: str, *, sagas: bool = False) -> None:
    """Check that an endpoint can receive messages in a way.

    Args:
        options: the endpoint's.
        receive: how; None: as the endpoint does.
        what: names the messages.
        sagas: whether the endpoint hosts sagas.

    Raises:
        SettingsError: there is no such way, or a lease contradicts another option.
    """
    if receive not in (None, *RECEIVES) or (receive == "transaction" and options.receive == "lease"):
        raise SettingsError(
            f"The endpoint {options.name!r} cannot have receive={receive!r} for {what}. Use one of: "
            f"{', '.join(RECEIVES)}; of an endpoint with receive='lease' all messages are leased."
        )
    if receive != "lease":
        return
    refused = (
        (
            options.outbox is not None and options.receive != "lease",
            "an outbox",
            "with an outbox, an endpoint leases all of its messages or none",
        ),
        (
            isinstance(options.outbox, Outbox) and options.outbox.pessimistic,
            "a pessimistic outbox",
            "no transaction of the business database is open while a handler works",
        ),
        (
            options.transaction_mode != "sends_atomic_with_receive" and options.outbox is None,
            f"the transaction mode {options.transaction_mode}",
            "a lease ends in one transaction with what its handler writes and sends",
        ),
        (isinstance(options.batch, int), f"batch={options.batch}", "each message has a lease and a commit of its own"),
        (options.send_only, "send_only=True", "there is no queue to receive from"),
        (
            options.instance is not None,
            f"instance={options.instance!r}",
            "messages of the instance's own queue are handled in a transaction",
        ),
        (sagas, "sagas", "no transaction keeps a saga's instance locked while a handler works"),
    )
    for used, other, why in refused:
        if used:
            raise SettingsError(
                f"The endpoint {options.name!r} cannot have receive='lease' for {what}, and {other}: {why}. Leave out "
                "one of the two."
            )


def takes_options(
    options: Callable[_Options, EndpointOptions],
) -> Callable[[Callable[[Any, EndpointOptions], None]], Callable[Concatenate[Any, _Options], None]]:
    """Return a decorator for an `__init__` that takes options: callers give them as the arguments of `options`."""

    def decorate(initialize: Callable[[Any, EndpointOptions], None]) -> Callable[Concatenate[Any, _Options], None]:
        def init(self: Any, /, *args: _Options.args, **kwargs: _Options.kwargs) -> None:
            initialize(self, options(*args, **kwargs))

        update_wrapper(init, initialize)
        signature = inspect.signature(options)
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        init.__signature__ = signature.replace(parameters=[own, *signature.parameters.values()], return_annotation=None)  # type: ignore[attr-defined]
        return init

    return decorate
