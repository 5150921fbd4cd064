"""Read the file of a bridge: two environments, the endpoints of each, and the events that these receive from the other
side.

bridge = load_bridge(Path("bridge.yml"))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from rowpost.errors import SettingsError
from rowpost.settings.environment import Settings, load_settings
from rowpost.settings.queue import canonical_name
from rowpost.settings.target import HIDDEN
from rowpost.settings.yaml_file import read_root, user_path
from rowpost.settings.yaml_node import LONGEST_S, Kept, Node, Seconds, decode

__all__ = ["BridgeEndpoint", "BridgeSettings", "BridgeSide", "load_bridge"]

SIDES = 2
DAY_S = 86400.0
#: characters of the name under which a side records what it got
LONGEST_NAME = 60


@dataclass(frozen=True)
class BridgeEndpoint:
    """An endpoint that the other side can send to.

    Attributes:
        name: its name, which is also that of its proxy queue on the other side.
        queue: its queue, by the name in its own environment.
        proxy: the proxy queue, by the name in the other environment.
        subscribe: the full type names of the events of the other side that it receives.
    """

    name: str
    queue: str
    proxy: str
    subscribe: tuple[str, ...] = ()


@dataclass(frozen=True)
class BridgeSide:
    """One side of a bridge.

    Attributes:
        name: how events and headers call it.
        settings: its environment.
        endpoints: the endpoints that live there.
        error_queue: gets the messages that cannot be moved from here, by the name in its environment.
    """

    name: str
    settings: Settings
    endpoints: tuple[BridgeEndpoint, ...]
    error_queue: str


@dataclass(frozen=True)
class _Top:
    name: Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
    batch_size: Annotated[int, Meta(ge=1, le=500)] = 100
    poll_interval: Annotated[float, Meta(ge=0.01, le=LONGEST_S)] = 0.2
    stop_timeout: Seconds = 30.0
    retention: Kept = 7 * DAY_S
    translate_reply_of_failed: bool = True


@dataclass(frozen=True)
class BridgeSettings(_Top):
    """A bridge between two environments. All times are seconds.

    Attributes:
        name: identifies the bridge in both databases; not to be changed while messages are in flight.
        sides: the two sides.
        batch_size: messages that are moved in one transaction, at most 500.
        poll_interval: time between two polls of queues that were empty.
        stop_timeout: time for which a stop waits for the batch that is being moved.
        retention: time for which the target remembers a message whose removal from the source it did not see.
        translate_reply_of_failed: whether the address for replies is translated of failed messages and of their retries
            too.
    """

    sides: tuple[BridgeSide, BridgeSide] = field(kw_only=True)


@dataclass(frozen=True)
class _Side:
    environment: str
    error_queue: str | None = None


@dataclass(frozen=True)
class _Endpoint:
    queue: str | None = None
    subscribe: tuple[str, ...] = ()


def load_bridge(path: Path) -> BridgeSettings:
    """Read the file of a bridge and the two environments that it names.

    A path of an environment counts from the bridge's file.

    Raises:
        SettingsError: a file is missing, or something in it is wrong.
    """
    if not path.is_file():
        raise SettingsError(f"{path}: no such file: write the bridge's two sides there, or name another file")
    root = read_root(path)
    nodes = list(root.children("sides"))
    top = decode(root, _Top, defaults={"name": path.stem})
    if len(nodes) != SIDES:
        raise root.error(
            "sides",
            f"a bridge has two sides, not {len(nodes)}: write two names, each with its environment and its endpoints",
        )
    lists = [list(node.children("endpoints")) for node in nodes]
    read = [decode(node, _Side) for node in nodes]
    loaded = [load_settings(_environment(path, side.environment)) for side in read]
    _check_apart(root, loaded)
    sides = []
    for here, there in ((0, 1), (1, 0)):
        endpoints = tuple(_read_endpoint(node, loaded[here], loaded[there]) for node in lists[here])
        written, own = read[here].error_queue, loaded[here].supervisor.error_queue
        if written is not None:
            own = canonical_name(
                nodes[here], written, loaded[here].engine, loaded[here].default_schema, key="error_queue"
            )
        sides.append(BridgeSide(nodes[here].name, loaded[here], endpoints, own))
    first, second = sides
    for side, other, node in ((first, second, nodes[0]), (second, first, nodes[1])):
        _check_side(node, side, other)
    return BridgeSettings(**vars(top), sides=(first, second))


def _environment(file: Path, name: str) -> str | Path:
    return file.parent / user_path(name) if name.endswith((".yml", ".yaml")) or "/" in name else name


def _check_apart(root: Node, loaded: list[Settings]) -> None:
    one, other = loaded
    if (one.engine, one.url, one.data_folder if one.embedded else "") == (
        other.engine,
        other.url,
        other.data_folder if other.embedded else "",
    ):
        same = True
    else:
        same = one.target == other.target and HIDDEN not in one.target
    if same:
        raise root.error("sides", f"both sides are {one.target}: endpoints of one database need no bridge")


def _read_endpoint(node: Node, here: Settings, there: Settings) -> BridgeEndpoint:
    read = decode(node, _Endpoint)
    return BridgeEndpoint(
        node.name,
        canonical_name(
            node, read.queue or node.name, here.engine, here.default_schema, key="queue" if read.queue else ""
        ),
        canonical_name(node, node.name, there.engine, there.default_schema),
        read.subscribe,
    )


def _check_side(node: Node, side: BridgeSide, other: BridgeSide) -> None:
    proxies = {each.proxy: each.name for each in other.endpoints}
    for endpoint in side.endpoints:
        if endpoint.queue in proxies:
            raise node.error(
                f"endpoints.{endpoint.name}", f"lives on the side {other.name} too: name it on one side only"
            )
    for name, endpoint_name in proxies.items():
        declared = side.settings.queue(name)
        if declared is not None and declared.worker is not None:
            raise node.error(
                "environment",
                f"{side.settings.environment} has a worker for the queue {name}, from which the bridge receives for "
                f"{endpoint_name}: remove one",
            )
    if side.error_queue in proxies:
        raise node.error(
            "error_queue",
            f"{side.error_queue} crosses the bridge: name another queue for messages that cannot, such as bridge.error",
        )
