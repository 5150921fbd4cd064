"""Sends mail from an event loop: async functions, and retries by settings."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

from rowpost import AsyncContext, Endpoint, Recoverability
from rowpost.errors import Unrecoverable
from shop.journal import note
from shop.messages import SendMail
from shop.tables import Mailed


class NoSuchAddress(Exception):
    """The settings name it: no retry helps."""


class MailForbidden(Unrecoverable):
    """No retry helps, whatever the settings say."""


class ServerDown(Exception):
    """It may be up again later."""


ERRORS = {"nobody": NoSuchAddress, "forbidden": MailForbidden, "down": ServerDown}


class Mailer:
    """What a worker process has one of, on its event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()

    async def send(self, address: str) -> None:
        assert asyncio.get_running_loop() is self.loop
        await asyncio.sleep(0)
        if address in ERRORS:
            raise ERRORS[address](address)


mailing = Endpoint(
    "Mailing",
    concurrency=2,
    recoverability=Recoverability(
        immediate_retries=1,
        delayed_retries=3,
        delay_increase=timedelta(milliseconds=20),
        backoff="exponential",
        longest_delay=timedelta(milliseconds=60),
        unrecoverable=(NoSuchAddress,),
    ),
)


@mailing.provides(Mailer)
async def mailer() -> AsyncIterator[Mailer]:
    note("mailer opened")
    yield Mailer()
    note("mailer closed")


@mailing.at_start
async def connect() -> None:
    await asyncio.sleep(0)
    if os.path.exists("network-down"):
        raise ServerDown("there is no network yet")
    note("mailing began")


@mailing.at_critical_error
def alarm(queue: str, error: str) -> None:
    note(f"alarm {queue}")


@mailing.around
async def counted(message: SendMail, context: AsyncContext, proceed: Callable[[], Awaitable[object]]) -> object:
    await context.connection.execute(
        "INSERT INTO surrounded (order_id, by) VALUES (%s, 'mailing')", (message.order_id,)
    )
    return await proceed()


@mailing.handles(SendMail)
async def send_mail(message: SendMail, context: AsyncContext, mailer: Mailer) -> None:
    context.session.add(Mailed(order_id=message.order_id, address=message.address))
    await mailer.send(message.address)
