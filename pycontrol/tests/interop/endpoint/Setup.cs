// What the options say, as NServiceBus's configuration.
using System.Diagnostics;
using NServiceBus;
using NServiceBus.Transport;

public static class Setup
{
    public static EndpointConfiguration Of(Options options)
    {
        if (options.One("trace", "off") == "on") ListenToTraces();
        var cfg = new EndpointConfiguration(options.Name);
        if (options.One("serializer", "json") == "xml") cfg.UseSerialization<XmlSerializer>(); else cfg.UseSerialization<SystemJsonSerializer>();
        cfg.SendFailedMessagesTo("error");
        if (options.One("audit", "on") == "on") cfg.AuditProcessedMessagesTo("audit");
        cfg.LimitMessageProcessingConcurrencyTo(int.Parse(options.One("concurrency", "4")));
        cfg.EnableInstallers();
        cfg.Recoverability()
            .Immediate(i => i.NumberOfRetries(int.Parse(options.One("immediate", "1"))))
            .Delayed(d => d.NumberOfRetries(int.Parse(options.One("delayedRetries", "0"))).TimeIncrease(TimeSpan.FromSeconds(1)));
        cfg.UsePersistence<LearningPersistence>()
            .SagaStorageDirectory(options.One("sagas", Path.Combine(Path.GetTempPath(), "nsb-sagas-" + options.Name)));
        if (options.Has("instance")) cfg.MakeInstanceUniquelyAddressable(options.One("instance", "1"));
        var routing = cfg.UseTransport(TransportOf(options));
        foreach (var route in options.All("route"))
        {
            var parts = route.Split(':', 2);
            routing.RouteToEndpoint(Commands.TypeOf(parts[0]), parts[1]);
        }
        cfg.DefineCriticalErrorAction((c, _) => { Report.Line(new { critical = c.Error }); return Task.CompletedTask; });
        return cfg;
    }

    static TransportDefinition TransportOf(Options options)
    {
        var mode = Enum.Parse<TransportTransactionMode>(options.One("mode", "SendsAtomicWithReceive"));
        if (options.One("engine", "postgresql") == "sqlserver")
        {
            var sqlServer = new SqlServerTransport(options.Connection) { TransportTransactionMode = mode };
            if (options.Has("schema")) sqlServer.DefaultSchema = options.One("schema", "dbo");
            return sqlServer;
        }
        var postgreSql = new PostgreSqlTransport(options.Connection) { TransportTransactionMode = mode };
        if (options.Has("schema")) postgreSql.DefaultSchema = options.One("schema", "public");
        return postgreSql;
    }

    // without a listener NServiceBus starts no activity, and writes no traceparent
    static void ListenToTraces() => ActivitySource.AddActivityListener(new ActivityListener
    {
        ShouldListenTo = _ => true,
        Sample = (ref ActivityCreationOptions<ActivityContext> _) => ActivitySamplingResult.AllDataAndRecorded,
    });
}
