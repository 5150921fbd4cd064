// Bodies: every type of value, and much data.
using NServiceBus;
using Shop.Messages;

public class ValueHandlers : IHandleMessages<Values>, IHandleMessages<Parcel>
{
    public async Task Handle(Values message, IMessageHandlerContext context)
    {
        Report.Handled(message, context);
        if (message.Echo) { message.Echo = false; await context.Reply(message); }
    }
    public Task Handle(Parcel message, IMessageHandlerContext context)
    {
        Report.Handled(new Parcel { OrderId = message.Data?.Length ?? -1 }, context);
        return Task.CompletedTask;
    }
}
