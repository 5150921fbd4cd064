"""The workers of an environment's file: who handles a queue's messages, how many at a time, and how they come and go."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rowpost.errors import SettingsError
from rowpost.settings.compat import compat_of
from rowpost.settings.yaml_file import Section

__all__ = ["ADAPTIVE", "LARGEST_BATCH", "MINIMUM_PEEK_DELAY", "OFF", "STRATEGIES", "WorkerSettings", "check_batch", "read_worker"]

STRATEGIES = ("adaptive", "fixed", "peek")
MINIMUM_PEEK_DELAY = 0.1
#: values of the setting `batch`, besides a number of messages
ADAPTIVE, OFF = "adaptive", "off"
#: the most messages that one call of receive_messages returns
LARGEST_BATCH = 500
HANDLER = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True)
class WorkerSettings:
    """Who handles the messages of a queue, and how many at a time.

    `limit` is the greatest number of worker processes: 4, and 1 for a secondary queue, unless it is given. `peek_delay` are
    the seconds between two looks at an empty queue, `attempts` the number of tries before a message moves to the error
    queue. All times are seconds.

    `time_limit`: a handler that runs longer is killed with its process, a failed attempt; 0 for no limit.
    `throttle_after` so many failures in a row (0: never) one worker is left, which waits `throttle_wait` between two
    attempts.
    `batch`: how many messages share a transaction: "adaptive" (up to 500 while a backlog waits, and their handlers take
    `batch_time` together), "off" (one) or a number of them. `purge_expired_on_startup`, `purge_expired_every` (0: never):
    remove expired messages unasked.
    """

    handler: str
    limit: int = 0
    strategy: str = "peek"
    secondary: bool = False
    peek_delay: float = 1.0
    attempts: int = 6
    purge_on_startup: bool = False
    time_limit: float = 0.0
    throttle_after: int = 0
    throttle_wait: float = 1.0
    purge_expired_on_startup: bool = False
    purge_expired_every: float = 0.0
    #: one worker at a time, of all processes on all machines: messages are handled in their order
    exclusive: bool = False
    batch: str | int = ADAPTIVE
    batch_time: float = 0.05

    def __post_init__(self) -> None:
        limit = 1 if self.exclusive else self.limit or _default_limit(self.secondary)
        object.__setattr__(self, "limit", limit)


def _default_limit(secondary: bool) -> int:
    return 1 if secondary else 4


def read_worker(section: Section, compat: str) -> WorkerSettings:
    """The section `worker` of a queue. Raises SettingsError."""
    handler = section.text("handler")
    if not HANDLER.fullmatch(handler):
        raise section.error("handler", f"{handler!r} is not of the form module:function, such as shop.handlers:order")
    secondary = section.flag("secondary", default=False)
    worker = WorkerSettings(
        handler=handler,
        limit=section.whole("limit", default=_default_limit(secondary), at_least=1),
        strategy=section.choice("strategy", STRATEGIES, default=compat_of(compat).strategy),
        secondary=secondary,
        peek_delay=section.seconds("peek_delay", default=1.0, at_least=MINIMUM_PEEK_DELAY),
        attempts=section.whole("attempts", default=6, at_least=1),
        purge_on_startup=section.flag("purge_on_startup", default=False),
        time_limit=section.seconds("time_limit", default=0.0, at_least=0.0),
        throttle_after=section.whole("throttle_after", default=0, at_least=0),
        throttle_wait=section.seconds("throttle_wait", default=1.0, at_least=0.0),
        purge_expired_on_startup=section.flag("purge_expired_on_startup", default=False),
        purge_expired_every=section.seconds("purge_expired_every", default=0.0, at_least=0.0),
        exclusive=section.flag("exclusive", default=False),
        batch=_read_batch(section),
        batch_time=section.seconds("batch_time", default=0.05, at_least=0.001),
    )
    section.finish()
    return worker


def _read_batch(section: Section) -> str | int:
    value = section.value("batch", default=ADAPTIVE)
    setting = OFF if value is False else value  # YAML reads off as false
    try:
        check_batch(setting)
    except SettingsError as error:
        raise section.error("batch", str(error)) from error
    return setting


def check_batch(setting: str | int) -> None:
    """Check a value of the setting `batch`: "adaptive", "off" or a number of messages.

    Raises:
        SettingsError: it is none of them.
    """
    number = isinstance(setting, int) and not isinstance(setting, bool) and 1 <= setting <= LARGEST_BATCH
    if setting not in (ADAPTIVE, OFF) and not number:
        raise SettingsError(f"batch {setting!r} is not known: write {ADAPTIVE}, {OFF}, or a number from 1 to {LARGEST_BATCH}")
