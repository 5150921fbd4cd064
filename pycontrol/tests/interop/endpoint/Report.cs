// The lines on stdout: one JSON object each, written whole. NServiceBus's log shares stdout; its lines are no JSON objects.
using System.Text.Json;
using NServiceBus;

public static class Report
{
    static readonly object Gate = new();

    public static void Line(object value)
    {
        var text = JsonSerializer.Serialize(value);
        lock (Gate) { Console.Out.WriteLine(text); Console.Out.Flush(); }
    }

    public static void Handled(object message, IMessageProcessingContext context) => Line(new
    {
        handled = message.GetType().Name,
        body = JsonSerializer.SerializeToElement(message, message.GetType()),
        headers = context.MessageHeaders.ToDictionary(p => p.Key, p => p.Value),
    });
}
