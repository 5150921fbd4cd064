"""The order policy: a saga that follows an order until its payment, and stores a reminder if the payment is late."""

from dataclasses import dataclass
from datetime import timedelta

from examples.shop.messages import OrderBilled, OrderPlaced, PaymentOverdue

from rowpost import ConflictPolicy, Endpoint, Recoverability, Saga, SagaContext, handles, starts

__all__ = ["OrderPolicy", "OrderState", "policy"]

PAY_WITHIN = timedelta(seconds=3)

policy = Endpoint(
    "Shop.Policy",
    error_queue="Shop.error",
    audit_queue="Shop.audit",
    limit=2,
    recoverability=Recoverability(policy=ConflictPolicy()),
)


@dataclass
class OrderState:
    """The state of an order. Amounts are in cents."""

    order_id: int
    amount: int = 0
    placed: bool = False
    billed: bool = False
    reminded: bool = False


@policy.saga
class OrderPolicy(Saga[OrderState], correlate={OrderPlaced: "order_id", OrderBilled: "order_id"}):
    """Events come from two endpoints, so the payment may arrive before the order. Either of them starts the saga."""

    @starts(OrderPlaced, subscribe=True)
    def placed(self, message: OrderPlaced, context: SagaContext) -> None:
        self.state.placed, self.state.amount = True, message.amount
        if not self.state.billed:
            context.request_timeout(PAY_WITHIN, PaymentOverdue())
        self._complete_when_done()

    @starts(OrderBilled, subscribe=True)
    def billed(self, message: OrderBilled, context: SagaContext) -> None:
        self.state.billed = True
        self._complete_when_done()

    @handles(PaymentOverdue)
    def overdue(self, message: PaymentOverdue, context: SagaContext) -> None:
        """Store a reminder. If the order was paid meanwhile, its instance is completed and the timeout is discarded."""
        self.state.reminded = True
        context.connection.execute("INSERT INTO shop.reminders (order_id) VALUES (%s)", (self.state.order_id,))

    def _complete_when_done(self) -> None:
        if self.state.placed and self.state.billed:
            self.complete()
