"""The worker: `rowpost --env examples/from_celery/shop.yml run` in the place of `celery worker`."""

from datetime import timedelta

from examples.from_celery.messages import CardCharged, ChargeCard

from rowpost import Context, Endpoint, Recoverability

__all__ = ["billing"]

# Celery: @app.task(autoretry_for=(Exception,), retry_backoff=10, max_retries=5)
#         def charge(order_id): ...
billing = Endpoint(
    "Billing",
    limit=8,  # celery worker --concurrency 8
    time_limit=timedelta(minutes=5),  # task_time_limit
    recoverability=Recoverability(
        immediate_retries=0, delayed_retries=5, delay_increase=timedelta(seconds=10), backoff="exponential"
    ),
)


@billing.handles(ChargeCard)
def charge(message: ChargeCard, context: Context) -> None:
    context.connection.execute("INSERT INTO charged (order_id) VALUES (%s)", (message.order_id,))
    context.send(CardCharged(message.order_id), to="Mail")  # charge.apply_async(link=...)
