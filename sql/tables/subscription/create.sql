-- A table of subscriptions, with the same columns as the NServiceBus transport's.
IF OBJECT_ID(N'{subscription_table}', N'U') IS NULL
    CREATE TABLE {subscription_table}
    (
        QueueAddress nvarchar(200) NOT NULL,
        Endpoint nvarchar(200) NOT NULL,
        Topic nvarchar(200) NOT NULL,
        CONSTRAINT [key:{subscription_key}] PRIMARY KEY CLUSTERED (Endpoint, Topic),
        CONSTRAINT [topic:{subscription_key}] UNIQUE NONCLUSTERED (Topic, Endpoint) -- a publisher looks for a topic
    );
GO
-- Publishers of NServiceBus read only this table: copy what rowpost's own endpoints subscribed to before. The rows stay where
-- they are, because other endpoints may still read that table.
INSERT INTO {subscription_table} (QueueAddress, Endpoint, Topic)
SELECT s.QueueAddress, s.Endpoint, s.Topic
FROM dbo.SubscriptionRouting AS s
WHERE NOT EXISTS (SELECT 1 FROM {subscription_table} AS o WHERE o.Endpoint = s.Endpoint AND o.Topic = s.Topic)
  AND EXISTS
  (
      SELECT 1
      FROM rowpost.queue AS q
      WHERE s.QueueAddress IN (q.queue_name, q.address, CONCAT(q.address, N'@', QUOTENAME(DB_NAME())))
  );
GO
