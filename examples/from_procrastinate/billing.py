"""The worker: `rowpost --env examples/from_procrastinate/shop.yml run` in the place of `procrastinate worker`."""

from datetime import timedelta

from examples.from_procrastinate.messages import CardCharged, ChargeCard

from rowpost import AsyncContext, Endpoint, Recoverability

__all__ = ["billing"]

# procrastinate: @app.task(queue="Billing", retry=RetryStrategy(max_attempts=6, exponential_wait=2))
#                async def charge(order_id): ...
billing = Endpoint(
    "Billing",
    concurrency=20,  # procrastinate worker --concurrency 20
    recoverability=Recoverability(
        immediate_retries=0, delayed_retries=5, delay_increase=timedelta(seconds=2), backoff="exponential"
    ),
)


@billing.handles(ChargeCard)
async def charge(message: ChargeCard, context: AsyncContext) -> None:
    await context.connection.execute("INSERT INTO charged (order_id) VALUES (%s)", (message.order_id,))
    context.send(CardCharged(message.order_id), to="Mail")
