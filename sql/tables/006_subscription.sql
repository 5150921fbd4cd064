-- The subscriptions of endpoints to events: the NServiceBus transport's own table, shared by all endpoints of the database.
IF OBJECT_ID(N'dbo.SubscriptionRouting', N'U') IS NULL
    CREATE TABLE dbo.SubscriptionRouting
    (
        QueueAddress nvarchar(200) NOT NULL,
        Endpoint nvarchar(200) NOT NULL,
        Topic nvarchar(200) NOT NULL,
        -- the transport's installer lets the server choose the name
        CONSTRAINT subscription_routing_key PRIMARY KEY CLUSTERED (Endpoint, Topic),
        CONSTRAINT subscription_routing_topic UNIQUE NONCLUSTERED (Topic, Endpoint) -- a publisher looks for a topic
    );
GO
