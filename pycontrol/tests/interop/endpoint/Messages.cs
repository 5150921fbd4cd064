// The messages that both sides know. tests/support/interop/messages.py has the same ones.
using NServiceBus;

namespace Shop.Messages
{
    public interface IHaveNumber { int OrderId { get; set; } }
    public class PlaceOrder : ICommand, IHaveNumber { public int OrderId { get; set; } public decimal Amount { get; set; } public string? Note { get; set; } public DateTimeOffset? When { get; set; } }
    public class OrderAccepted : IMessage { public int OrderId { get; set; } }
    public interface IOrderEvent : IEvent { int OrderId { get; set; } }
    public class OrderPlaced : IOrderEvent { public int OrderId { get; set; } }
    public class OrderBilled : IEvent { public int OrderId { get; set; } public decimal Amount { get; set; } }
    public class BillOrder : ICommand { public int OrderId { get; set; } }
    public class Fail : ICommand { public int OrderId { get; set; } }
    public class Count : ICommand, IHaveNumber { public int OrderId { get; set; } }
    public class Relay : ICommand { public int OrderId { get; set; } public string? To { get; set; } public bool ThenFail { get; set; } }
    public class StartOrder : ICommand { public int OrderId { get; set; } public string? Payments { get; set; } }
    public class TakePayment : ICommand { public int OrderId { get; set; } }
    public class PaymentDone : IMessage { public int OrderId { get; set; } }
    public class Parcel : ICommand { public int OrderId { get; set; } public byte[]? Data { get; set; } }
    [TimeToBeReceived("00:00:02")] public class Ephemeral : ICommand { public int OrderId { get; set; } }
    public class Timed : ICommand, IHaveNumber { public int OrderId { get; set; } }
    public class Overdue { }
    public enum Colour { Red, DarkGreen }
    public class Line { public string? Sku { get; set; } public int Count { get; set; } public decimal Price { get; set; } }
    public class Values : IMessage
    {
        public int OrderId { get; set; } public bool Echo { get; set; } public decimal? Amount { get; set; } public DateTime? At { get; set; } public DateTimeOffset? When { get; set; }
        public DateOnly? Day { get; set; } public TimeOnly? Clock { get; set; } public TimeSpan? Span { get; set; } public Guid? Id { get; set; } public byte[]? Data { get; set; }
        public double? Ratio { get; set; } public long? Big { get; set; } public bool? Yes { get; set; } public string? Text { get; set; } public List<int>? Numbers { get; set; }
        public Dictionary<string, string>? Map { get; set; } public Colour? Colour { get; set; } public Line? Line { get; set; } public List<Line>? Lines { get; set; }
    }
}
