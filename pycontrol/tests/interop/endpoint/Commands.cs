// The lines on stdin: each is one command, and is answered by {"done": ...} or {"error": ...}. Ends at "stop", or when stdin does.
using System.Text.Json;
using NServiceBus;
using Shop.Messages;

public static class Commands
{
    public static async Task Run(IEndpointInstance endpoint)
    {
        string? line;
        while ((line = Console.In.ReadLine()) != null)
        {
            try
            {
                using var json = JsonDocument.Parse(line);
                var op = json.RootElement.GetProperty("op").GetString();
                if (op == "stop") return;
                if (op == "mend") FailureHandlers.Mended = true; else await Send(endpoint, op!, json.RootElement);
                Report.Line(new { done = op });
            }
            catch (Exception e) { Report.Line(new { error = e.ToString() }); }
        }
    }

    public static Type TypeOf(string name) =>
        typeof(PlaceOrder).Assembly.GetType("Shop.Messages." + name) ?? throw new ArgumentException("no type " + name);

    static async Task Send(IEndpointInstance endpoint, string op, JsonElement root)
    {
        var repeat = root.TryGetProperty("repeat", out var r) ? r.GetInt32() : 1;
        var type = TypeOf(root.GetProperty("type").GetString()!);
        for (var i = 0; i < repeat; i++)
        {
            var message = root.GetProperty("body").Deserialize(type)!;
            if (repeat > 1 && message is IHaveNumber n) n.OrderId = i;
            if (op == "publish") await endpoint.Publish(message); else await endpoint.Send(message, OptionsOf(root));
        }
    }

    static SendOptions OptionsOf(JsonElement root)
    {
        var send = new SendOptions();
        if (root.TryGetProperty("to", out var to)) send.SetDestination(to.GetString()!);
        if (root.TryGetProperty("delayMs", out var delay)) send.DelayDeliveryWith(TimeSpan.FromMilliseconds(delay.GetInt32()));
        if (root.TryGetProperty("local", out _)) send.RouteToThisEndpoint();
        if (root.TryGetProperty("instanceReply", out _)) send.RouteReplyToThisInstance();
        if (root.TryGetProperty("headers", out var headers))
            foreach (var h in headers.EnumerateObject()) send.SetHeader(h.Name, h.Value.GetString()!);
        return send;
    }
}
