-- Shows the first messages of a queue with a readable body. PostgreSQL; nothing is locked, nothing changes.
-- Put the queue's table in the place of public."Sales".
SELECT
    q.seq AS row_version,
    q.id,
    q.expires,
    substring(q.headers FROM '"NServiceBus\.EnclosedMessageTypes"\s*:\s*"([^"]*)"') AS message_type,
    substring(q.headers FROM '"NServiceBus\.TimeSent"\s*:\s*"([^"]*)"') AS time_sent,
    octet_length(q.body) AS body_bytes,
    rowpost._readable_body(q.body) AS readable_body,
    q.headers
FROM public."Sales" AS q
ORDER BY q.seq
LIMIT 100;
