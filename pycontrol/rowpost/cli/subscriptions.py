"""rowpost subscriptions list, add, remove, forget-table: which endpoints receive which events."""

from __future__ import annotations

from typing import Annotated

import typer

from rowpost.cli.command import YesOption, command
from rowpost.cli.completion import queue_names
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.session import Session
from rowpost.deploy import subscriptions as subscription_tables
from rowpost.operations.subscriptions import subscribe, subscriptions, unsubscribe

__all__ = ["app"]

app = typer.Typer(
    help="List, add and remove subscriptions to events, and forget a table of them.", no_args_is_help=True
)

EndpointArgument = Annotated[str, typer.Argument(metavar="ENDPOINT", help="The subscribing endpoint's name.")]
TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The event's full type name, such as Shop.Messages.OrderPlaced.")
]


@command(app, "list")
def list_subscriptions(
    session: Session,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Only subscriptions to this event.")
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", metavar="ENDPOINT", help="Only subscriptions of this endpoint.")
    ] = None,
) -> None:
    """List all subscriptions, including those of NServiceBus endpoints."""
    with session.deployed() as database:
        found = [
            each
            for each in subscriptions(database)
            if topic in (None, each.topic) and endpoint in (None, each.endpoint)
        ]
    none = "There are no subscriptions. To add one, run: rowpost subscriptions add ENDPOINT TOPIC"
    rows = [(each.topic, each.endpoint, each.queue) for each in found]
    session.listing(found, ("topic", "endpoint", "queue"), rows, none=none)


@command(app)
def add(
    session: Session,
    endpoint: EndpointArgument,
    topic: TopicArgument,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue",
            metavar="QUEUE",
            help="The queue that receives the events. Default: the queue with the endpoint's name.",
            autocompletion=queue_names,
        ),
    ] = None,
) -> None:
    """Subscribe an endpoint to an event, or move its subscription to another queue. Takes effect immediately."""
    endpoint, topic = session.text(endpoint), session.text(topic)
    with session.deployed() as database:
        session.result(
            subscribe(database, endpoint, topic, session.name(queue or endpoint), session.settings.subscription_table)
        )


@command(app)
def remove(session: Session, endpoint: EndpointArgument, topic: TopicArgument) -> None:
    """Remove a subscription. An endpoint that declares it subscribes again when it starts."""
    endpoint, topic = session.text(endpoint), session.text(topic)
    with session.deployed() as database:
        removed = unsubscribe(database, endpoint, topic)
        if removed is None:
            raise Refused(
                f"{endpoint} is not subscribed to {topic}. To list the subscriptions, run: rowpost subscriptions list",
                ExitCode.NOT_FOUND,
            )
        session.result(removed)


@command(app, "forget-table")
def forget_table(
    session: Session,
    name: Annotated[
        str, typer.Argument(metavar="TABLE", help="The table of subscriptions, such as SubscriptionRouting@[nsb].")
    ],
    yes: YesOption = False,
) -> None:
    """Send events no longer to the subscribers in a table that no environment names any more. Its rows stay."""
    with session.deployed() as database:
        wanted = session.name(name)
        if wanted == session.settings.subscription_table:
            raise Refused(
                f"The environment subscribes in {wanted}: name another subscription_table first, then run rowpost "
                "apply.",
                ExitCode.FAILED,
            )
        session.confirm(f"Send events no longer to the subscribers in {wanted} in {session.settings.target}?", yes)
        subscription_tables.forget_table(database, wanted)
    sentence = f"Events no longer go to the subscribers in {wanted}; its rows stay."
    session.answer({"table": wanted, "forgotten": True}, sentence)
