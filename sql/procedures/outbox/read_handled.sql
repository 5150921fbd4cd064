SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.read_handled
    @endpoint nvarchar(400),
    @message_id nvarchar(400)
AS
/*
Returns when an endpoint has handled a message, and whether its operations are sent. For people: it locks nothing.
Atomicity: reads only.
Locking:   none that lasts.
*/
SET NOCOUNT, XACT_ABORT ON;

SELECT
    o.handled_at,
    CAST(CASE WHEN p.message_id IS NULL THEN 1 ELSE 0 END AS bit) AS sent
FROM rowpost.outbox AS o
LEFT OUTER JOIN rowpost.outbox_operations AS p
    ON o.endpoint = p.endpoint AND o.message_id = p.message_id
WHERE o.endpoint = @endpoint AND o.message_id = @message_id;
GO
