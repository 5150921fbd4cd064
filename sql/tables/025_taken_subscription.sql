-- The subscriptions that publishers recorded for others, because of their Subscribe messages. A publisher moves and ends no others.
IF OBJECT_ID(N'rowpost.taken_subscription', N'U') IS NULL
    CREATE TABLE rowpost.taken_subscription
    (
        endpoint nvarchar(200) NOT NULL,
        topic nvarchar(200) NOT NULL,
        publisher nvarchar(200) NOT NULL,
        queue_address nvarchar(200) NOT NULL,
        -- 1,200 bytes: more than the key of a clustered index may have
        CONSTRAINT taken_subscription_key PRIMARY KEY NONCLUSTERED (endpoint, topic, publisher)
    );
GO
