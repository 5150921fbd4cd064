"""Settings of the workers of one queue: who handles its messages, how many at a time, and how workers start and stop.

`WorkerSettings` are the values, with their ranges and defaults. `read_worker` reads them from an environment's file.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from rowpost.errors import SettingsError
from rowpost.settings.compat import StrategyName, compat_of
from rowpost.settings.yaml_node import LONGEST_S, Count, Node, Seconds, decode

__all__ = [
    "ADAPTIVE",
    "LARGEST_BATCH",
    "LARGEST_CONCURRENCY",
    "LARGEST_LIMIT",
    "MINIMUM_PEEK_DELAY",
    "OFF",
    "RETRIES",
    "STRATEGIES",
    "FunctionRetries",
    "Growth",
    "WorkerSettings",
    "check_batch",
    "read_worker",
]

STRATEGIES = ("adaptive", "fixed", "peek")
#: seconds
MINIMUM_PEEK_DELAY = 0.1
#: values of the setting `batch` that are not a number of messages
ADAPTIVE, OFF = "adaptive", "off"
#: the most messages that one call of receive_messages returns
LARGEST_BATCH = 500
DEFAULT_LIMIT = 4
#: the most messages of one queue that are handled at the same time: each has a connection
LARGEST_LIMIT = 10_000
#: the most messages that a process handles at the same time: each has a thread and a connection
LARGEST_CONCURRENCY = 1000
DEFAULT_ATTEMPTS = 6
Growth = Literal["linear", "exponential"]
_Rounds = Annotated[int, Meta(ge=0, le=2_147_483_647)]

_HANDLER = Meta(
    pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*\Z",
    description="of the form module:function, such as shop.handlers:order",
)


@dataclass(frozen=True)
class FunctionRetries:
    """How often and when a message of a plain function is tried. All times are seconds.

    Attributes:
        attempts: in each round.
        delayed_retries: rounds after the first one.
        delay_increase: the first delay, and the difference to each further one.
        backoff: "exponential" doubles each delay.
        longest_delay: no delay is longer; 0 for no limit.
    """

    attempts: Count = DEFAULT_ATTEMPTS
    delayed_retries: _Rounds = 0
    delay_increase: Seconds = 10.0
    backoff: Growth = "linear"
    longest_delay: Seconds = 0.0


@dataclass(frozen=True)
class WorkerSettings:
    """Who handles the messages of a queue, and how many workers do so. All times are seconds.

    Attributes:
        handler: the function or endpoint, as `module:name`.
        limit: the most messages that one supervisor handles at the same time. 0 stands for the default: `concurrency`,
            if that is given, else 4, or 1 for a secondary queue. An exclusive queue has one worker, whatever the limit
            is.
        concurrency: how many messages a worker process handles at the same time: as tasks of `async def` handlers, or
            in threads. 1: a process for each message.
        strategy: how workers are started and stopped: "adaptive", "fixed" or "peek".
        secondary: whether this queue is not its endpoint's main one, for example a queue of replies.
        peek_delay: time between two peeks at an empty queue.
        attempts, delayed_retries, delay_increase, backoff, longest_delay: how often and when a message of a function is
            tried before it moves to the error queue, see FunctionRetries; None for the default. For an endpoint, its
            `recoverability` decides instead, and these settings are refused.
        purge_on_startup: remove all messages when the supervisor starts.
        time_limit: a handler that runs longer is killed with its process, and the attempt failed; 0 for no limit.
        throttle_after: after so many failures in a row, one worker is left; 0 for never.
        throttle_wait: time between two attempts of that worker.
        purge_expired_on_startup: remove expired messages when the supervisor starts.
        purge_expired_every: time between two removals of expired messages; 0 for never.
        exclusive: one worker at a time, of all processes on all machines, so that messages are handled in their order.
        isolated: the queue keeps a worker without work, and no process has its handler and those of other queues.
        batch: how many messages share a transaction: "off" (one), a number, or "adaptive" (up to 500 if a backlog waits
            and the handlers take `batch_time` together).
        batch_time: processor time that the handlers of one transaction may take if `batch` is adaptive. By the clock,
            they may take four times as long.
    """

    handler: Annotated[str, _HANDLER]
    limit: Annotated[int, Meta(ge=1, le=LARGEST_LIMIT)] = 0
    concurrency: Annotated[int, Meta(ge=1, le=LARGEST_CONCURRENCY)] = 1
    strategy: StrategyName = "peek"
    secondary: bool = False
    peek_delay: Annotated[float, Meta(ge=MINIMUM_PEEK_DELAY, le=LONGEST_S)] = 1.0
    attempts: Count | None = None
    delayed_retries: _Rounds | None = None
    delay_increase: Seconds | None = None
    backoff: Growth | None = None
    longest_delay: Seconds | None = None
    purge_on_startup: bool = False
    time_limit: Seconds = 0.0
    throttle_after: Annotated[int, Meta(ge=0, le=2_147_483_647)] = 0
    throttle_wait: Seconds = 1.0
    purge_expired_on_startup: bool = False
    purge_expired_every: Seconds = 0.0
    exclusive: bool = False
    isolated: bool = False
    batch: str | int = ADAPTIVE
    batch_time: Annotated[float, Meta(ge=0.001, le=LONGEST_S)] = 0.05
    #: whether `limit` was given
    has_limit: ClassVar[bool] = False

    def __post_init__(self) -> None:
        usual = self.concurrency if self.concurrency > 1 else 1 if self.secondary else DEFAULT_LIMIT
        object.__setattr__(self, "has_limit", bool(self.limit))
        object.__setattr__(self, "limit", 1 if self.exclusive else self.limit or usual)

    @property
    def may_be_quiet(self) -> bool:
        """Whether the queue may have no worker while it has no work: then the warm worker takes its first messages."""
        return self.strategy == "peek" and not (self.exclusive or self.isolated)

    @property
    def retries(self) -> FunctionRetries | None:
        """How often and when a message of a function is tried; None if the settings do not say it."""
        given = {name: value for name in RETRIES if (value := getattr(self, name)) is not None}
        return FunctionRetries(**given) if given else None

    def without_retries(self) -> WorkerSettings:
        """Return the settings without what they say about retries of a function."""
        return replace(self, attempts=None, delayed_retries=None, delay_increase=None, backoff=None, longest_delay=None)


#: the settings that are for functions alone
RETRIES = tuple(each.name for each in fields(FunctionRetries))


def read_worker(node: Node, compat: str) -> WorkerSettings:
    """Read the section `worker` of a queue; `compat` sets the default strategy. Raises SettingsError."""
    if node.values.get("batch") is False:  # YAML 1.1 reads off as false
        node.values["batch"] = OFF
    worker = decode(node, WorkerSettings, defaults={"strategy": compat_of(compat).strategy})
    if worker.exclusive and worker.concurrency > 1:
        said = f"{worker.concurrency}: an exclusive queue has one worker. Remove one of the two"
        raise node.error("concurrency", said)
    try:
        check_batch(worker.batch)
    except SettingsError as error:
        raise node.error("batch", str(error)) from error
    return worker


def check_batch(setting: str | int) -> None:
    """Check a value of the setting `batch`: "adaptive", "off" or a number of messages.

    Raises:
        SettingsError: it is none of them.
    """
    number = isinstance(setting, int) and not isinstance(setting, bool) and 1 <= setting <= LARGEST_BATCH
    if setting not in (ADAPTIVE, OFF) and not number:
        raise SettingsError(
            f"batch {setting!r} is not known: write {ADAPTIVE}, {OFF}, or a number from 1 to {LARGEST_BATCH}"
        )
