// Handlers that fail: always until the command "mend", or after they have sent.
using NServiceBus;
using Shop.Messages;

public class FailureHandlers : IHandleMessages<Fail>, IHandleMessages<Relay>
{
    public static volatile bool Mended;

    public Task Handle(Fail message, IMessageHandlerContext context)
    {
        if (!Mended) throw new InvalidOperationException("no such order: " + message.OrderId);
        Report.Handled(message, context);
        return Task.CompletedTask;
    }
    public async Task Handle(Relay message, IMessageHandlerContext context)
    {
        var send = new SendOptions();
        send.SetDestination(message.To!);
        await context.Send(new BillOrder { OrderId = message.OrderId }, send);
        if (message.ThenFail) throw new InvalidOperationException("after sending");
        Report.Handled(message, context);
    }
}
