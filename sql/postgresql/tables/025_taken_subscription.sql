-- The subscriptions that publishers recorded for others, because of their Subscribe messages. A publisher moves and ends no others.
CREATE TABLE IF NOT EXISTS rowpost.taken_subscription
(
    endpoint varchar(200) NOT NULL,
    topic varchar(200) NOT NULL,
    publisher varchar(200) NOT NULL,
    queue_address varchar(200) NOT NULL,
    CONSTRAINT taken_subscription_key PRIMARY KEY (endpoint, topic, publisher)
);
