-- A table of subscriptions, with the same columns as the NServiceBus transport's.
CREATE TABLE IF NOT EXISTS {subscription_table}
(
    queueaddress varchar(200) NOT NULL,
    endpoint varchar(200) NOT NULL,
    topic varchar(200) NOT NULL,
    PRIMARY KEY (endpoint, topic),
    UNIQUE (topic, endpoint) -- a publisher looks for a topic
);

-- Publishers of NServiceBus read only this table: copy what rowpost's own endpoints subscribed to before. The rows stay where
-- they are, because other endpoints may still read that table.
INSERT INTO {subscription_table} (queueaddress, endpoint, topic)
SELECT s.queueaddress, s.endpoint, s.topic
FROM public."SubscriptionRouting" AS s
WHERE EXISTS (
    SELECT FROM rowpost.queue AS q
    WHERE s.queueaddress IN (q.queue_name, q.bracketed_address, q.quoted_address)
)
ON CONFLICT (endpoint, topic) DO NOTHING;
