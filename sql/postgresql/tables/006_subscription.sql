-- The subscriptions of endpoints to events: the NServiceBus transport's own table, shared by all endpoints of the database.
CREATE TABLE IF NOT EXISTS public."SubscriptionRouting"
(
    queueaddress varchar(200) NOT NULL,
    endpoint varchar(200) NOT NULL,
    topic varchar(200) NOT NULL,
    PRIMARY KEY (endpoint, topic),
    UNIQUE (topic, endpoint) -- a publisher looks for a topic
);
