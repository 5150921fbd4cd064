// A saga that asks another endpoint for a payment, and ends at its timeout.
using NServiceBus;
using Shop.Messages;

public class OrderSaga : Saga<OrderSaga.State>, IAmStartedByMessages<StartOrder>, IHandleMessages<PaymentDone>, IHandleTimeouts<Overdue>
{
    public class State : ContainSagaData { public int OrderId { get; set; } public bool Paid { get; set; } }
    protected override void ConfigureHowToFindSaga(SagaPropertyMapper<State> mapper) =>
        mapper.MapSaga(s => s.OrderId).ToMessage<StartOrder>(m => m.OrderId);
    public async Task Handle(StartOrder message, IMessageHandlerContext context)
    {
        Report.Handled(message, context);
        var send = new SendOptions();
        send.SetDestination(message.Payments!);
        await context.Send(new TakePayment { OrderId = message.OrderId }, send);
        await RequestTimeout<Overdue>(context, TimeSpan.FromSeconds(2));
    }
    public Task Handle(PaymentDone message, IMessageHandlerContext context) { Data.Paid = true; Report.Handled(message, context); return Task.CompletedTask; }
    public Task Timeout(Overdue state, IMessageHandlerContext context)
    {
        Report.Line(new { timeout = Data.OrderId, paid = Data.Paid });
        MarkAsComplete();
        return Task.CompletedTask;
    }
}
