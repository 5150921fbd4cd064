"""What a bridge needs in both databases: proxy queues, error queues, the outbox's table of dispatches,
subscriptions.
"""

from __future__ import annotations

from rowpost.database.connection import Connection
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.endpoint.provisioning import deployed_queues, subscribe_queues
from rowpost.errors import QueueNotFound
from rowpost.settings.bridge import BridgeSettings, BridgeSide
from rowpost.settings.environment import QueueSettings, Settings
from rowpost.wire.address import parse_address

__all__ = ["check", "install", "subscribe"]


def install(bridge: BridgeSettings, here: BridgeSide, there: BridgeSide, database: Connection) -> tuple[str, ...]:
    """Deploy on the side `here` what the bridge needs and the database does not have, and subscribe.

    Return the names of what was made.
    """
    found = deployed_queues(database)
    wanted = [QueueSettings(each.proxy) for each in there.endpoints] + [QueueSettings(here.error_queue, delayed=False)]
    missing = tuple(queue for queue in wanted if queue.name not in found)
    # under a name of its own, so that the environment does not take what the bridge declares for its own
    settings = Settings(
        f"bridge {bridge.name}",
        here.settings.engine,
        here.settings.url,
        default_schema=here.settings.default_schema,
        compat=here.settings.compat,
        queues=missing,
        features=("outbox",),
        roles=here.settings.roles,
        subscription_table=here.settings.subscription_table,
    )
    made = apply(database, plan(settings)).applied
    subscribe(here, there, database)
    return made


def subscribe(here: BridgeSide, there: BridgeSide, database: Connection) -> None:
    """Subscribe the proxy queues to the events of the side `here` that endpoints of the side `there` receive."""
    proxies = [(each.name, parse_address(each.proxy), each.subscribe) for each in there.endpoints]
    subscribe_queues(database, here.settings.subscription_table, proxies)


def check(bridge: BridgeSettings, here: BridgeSide, there: BridgeSide, database: Connection) -> list[str]:
    """Check that the side `here` has what the bridge needs.

    Return the queues of its endpoints that are not registered there.

    Raises:
        QueueNotFound: a proxy queue or the error queue is missing.
        FeatureMissing: the table of dispatches is missing.
        PermissionDenied: the login is not an operator.
    """
    database.check_schema()
    found = deployed_queues(database)
    for name in (*(each.proxy for each in there.endpoints), here.error_queue):
        if name not in found:
            raise QueueNotFound(
                f"The queue {name!r} is not deployed in {here.settings.target}. Run: rowpost bridge install"
            )
    database.call("forget_dispatch", endpoint=f"bridge {bridge.name}", message_id="-")
    return [each.queue for each in here.endpoints if each.queue not in found]
