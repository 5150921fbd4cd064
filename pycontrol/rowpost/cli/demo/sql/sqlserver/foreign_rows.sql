-- Rows as a system writes them that knows nothing but the table.
SET NOCOUNT ON;
INSERT INTO {queue_table} (Id, CorrelationId, ReplyToAddress, Recoverable, Expires, Headers, Body)
VALUES
    -- no headers at all: the type stands in the body
    (NEWID(), NULL, NULL, 1, NULL, N'',
     CAST('{"$type":"Shop.Messages.PlaceOrder, Shop.Messages","OrderId":90001,"Amount":12.50}' AS varbinary(max))),
    -- no body: all it has to say stands in the headers
    (NEWID(), 'erp-90002', NULL, 1, NULL,
     N'{"NServiceBus.EnclosedMessageTypes":"Shop.Messages.PlaceOrder","NServiceBus.MessageId":"erp-90002","Shop.OrderId":"90002","Shop.Note":null}',
     NULL),
    -- expired an hour ago: it is dropped when it is received
    (NEWID(), NULL, NULL, 1, DATEADD(HOUR, -1, GETUTCDATE()), N'',
     CAST('{"OrderId":90004}' AS varbinary(max))),
    -- headers that are not JSON
    (NEWID(), NULL, NULL, 1, NULL, N'order 90005, urgent', CAST('{"OrderId":90005}' AS varbinary(max)));

-- the optional columns left out
INSERT INTO {queue_table} (Id, Recoverable, Headers, Body)
VALUES
    (NEWID(), 1, N'{"NServiceBus.EnclosedMessageTypes":"Shop.Messages.PlaceOrder"}',
     CAST('{"OrderId":90003,"Amount":7.00}' AS varbinary(max)));
