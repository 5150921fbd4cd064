-- Rows as a system writes them that knows nothing but the table.
INSERT INTO {queue_table} (id, expires, headers, body)
VALUES
    -- no headers at all: the type stands in the body
    (gen_random_uuid(), NULL, '',
     convert_to('{"$type":"Shop.Messages.PlaceOrder, Shop.Messages","OrderId":90001,"Amount":12.50}', 'UTF8')),
    -- no body: all it has to say stands in the headers
    (gen_random_uuid(), NULL,
     '{"NServiceBus.EnclosedMessageTypes":"Shop.Messages.PlaceOrder","NServiceBus.MessageId":"erp-90002","Shop.OrderId":"90002","Shop.Note":null}',
     NULL),
    -- expired an hour ago: it is dropped when it is received
    (gen_random_uuid(), timezone('UTC', clock_timestamp()) - interval '1 hour', '',
     convert_to('{"OrderId":90004}', 'UTF8')),
    -- headers that are not JSON
    (gen_random_uuid(), NULL, 'order 90005, urgent', convert_to('{"OrderId":90005}', 'UTF8'));

-- the optional columns left out
INSERT INTO {queue_table} (id, headers, body)
VALUES
    (gen_random_uuid(), '{"NServiceBus.EnclosedMessageTypes":"Shop.Messages.PlaceOrder"}',
     convert_to('{"OrderId":90003,"Amount":7.00}', 'UTF8'));
