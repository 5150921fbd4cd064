"""Sagas: state that several messages share, stored in the queue's database, one row per instance.

    class OrderPolicy(Saga[OrderState], correlate={PlaceOrder: "order_id", PaymentReceived: "order_id"}):
        @starts(PlaceOrder)
        def placed(self, message, context):
            self.state.total = message.total
            context.request_timeout(timedelta(days=1), PaymentOverdue())

        @handles(PaymentReceived)
        def paid(self, message, context):
            context.publish(OrderAccepted(self.state.order_id))
            self.complete()

    sales.saga(OrderPolicy)

The removal of the message, the state and the outgoing messages commit together. `declaration` holds what a user writes,
`invocation` finds an instance and runs its method, `state` and `correlation` convert state and correlation values to
columns. See docs/guides/sagas.md.
"""

from rowpost.sagas.conflicts import ConflictPolicy
from rowpost.sagas.context import SagaContext
from rowpost.sagas.correlation import Header
from rowpost.sagas.declaration import Saga, handles, starts, timeout

__all__ = ["ConflictPolicy", "Header", "Saga", "SagaContext", "handles", "starts", "timeout"]
