// Requests, replies and events. What only reports what came stands at the end.
using NServiceBus;
using Shop.Messages;

public class OrderHandlers : IHandleMessages<PlaceOrder>, IHandleMessages<TakePayment>, IHandleMessages<OrderAccepted>,
    IHandleMessages<IOrderEvent>, IHandleMessages<OrderBilled>, IHandleMessages<BillOrder>, IHandleMessages<Ephemeral>,
    IHandleMessages<Count>, IHandleMessages<Timed>
{
    public async Task Handle(PlaceOrder message, IMessageHandlerContext context)
    {
        Report.Handled(message, context);
        await context.Reply(new OrderAccepted { OrderId = message.OrderId });
        await context.Publish(new OrderPlaced { OrderId = message.OrderId });
    }
    public async Task Handle(TakePayment message, IMessageHandlerContext context)
    {
        Report.Handled(message, context);
        await context.Reply(new PaymentDone { OrderId = message.OrderId });
    }
    public Task Handle(OrderAccepted message, IMessageHandlerContext context) { Report.Handled(message, context); return Task.CompletedTask; }
    public Task Handle(IOrderEvent message, IMessageHandlerContext context) { Report.Handled(message, context); return Task.CompletedTask; }
    public Task Handle(OrderBilled message, IMessageHandlerContext context) { Report.Handled(message, context); return Task.CompletedTask; }
    public Task Handle(BillOrder message, IMessageHandlerContext context) { Report.Handled(message, context); return Task.CompletedTask; }
    public Task Handle(Ephemeral message, IMessageHandlerContext context) { Report.Handled(message, context); return Task.CompletedTask; }
    public Task Handle(Count message, IMessageHandlerContext context) { Report.Line(new { counted = message.OrderId }); return Task.CompletedTask; }
    public Task Handle(Timed message, IMessageHandlerContext context)
    {
        Report.Line(new { timed = message.OrderId, at = DateTimeOffset.UtcNow.ToUnixTimeMilliseconds() });
        return Task.CompletedTask;
    }
}
