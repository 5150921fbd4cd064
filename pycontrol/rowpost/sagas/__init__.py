"""Sagas: state that several messages build up together, stored beside the queue, one row per instance.

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

The message, the state and what the handler sends commit as one. declaration.py is what a user writes, running.py finds an
instance and runs it, state.py and correlation.py turn state and correlation values into columns.
"""

from rowpost.sagas.conflicts import ConflictPolicy
from rowpost.sagas.context import SagaContext
from rowpost.sagas.declaration import Saga, handles, starts

__all__ = ["ConflictPolicy", "Saga", "SagaContext", "handles", "starts"]
