CREATE OR REPLACE FUNCTION rowpost."_write_subscription:{subscription_key}"(
    p_endpoint text,
    p_topic text,
    p_queue_address text DEFAULT NULL, -- NULL ends the subscription
    p_new boolean DEFAULT NULL -- true: make the subscription if it is not there
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Changes, ends or makes one subscription in one table of subscriptions.
Atomicity: in the caller's transaction.
Locking:   one key of the subscription table.
The caller must be allowed to receive from the queue that is subscribed now, or be an operator.
*/
DECLARE
    v_old_address text;
BEGIN
    LOOP
        IF p_new THEN
            INSERT INTO {subscription_table} AS s (queueaddress, endpoint, topic)
            VALUES (p_queue_address, p_endpoint, p_topic)
            ON CONFLICT (endpoint, topic) DO NOTHING;

            EXIT WHEN FOUND;
        END IF;

        SELECT s.queueaddress INTO v_old_address
        FROM {subscription_table} AS s
        WHERE s.endpoint = p_endpoint AND s.topic = p_topic
        FOR UPDATE;

        IF NOT FOUND THEN
            CONTINUE WHEN p_new; -- another session has ended the subscription meanwhile
            EXIT;
        END IF;

        IF p_queue_address IS NULL THEN
            PERFORM rowpost._require_subscriber(v_old_address);
            DELETE FROM {subscription_table} AS s WHERE s.endpoint = p_endpoint AND s.topic = p_topic;
        ELSIF v_old_address <> p_queue_address THEN
            PERFORM rowpost._require_subscriber(v_old_address);
            UPDATE {subscription_table} AS s
            SET queueaddress = p_queue_address
            WHERE s.endpoint = p_endpoint AND s.topic = p_topic;
        END IF;

        EXIT;
    END LOOP;
END
$rowpost$;
