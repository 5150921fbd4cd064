-- Shows the first messages of a queue with a readable body. SQL Server; nothing is locked that lasts, nothing changes.
-- Put the queue's table in the place of dbo.Sales.
-- sqlcmd and SQL Server Agent connect with QUOTED_IDENTIFIER OFF, with which a table with a filtered index cannot be changed.
SET ANSI_NULLS, QUOTED_IDENTIFIER ON;
GO
SELECT TOP (100)
    q.RowVersion AS row_version,
    q.Id AS id,
    q.Expires AS expires,
    CASE WHEN ISJSON(q.Headers) = 1 THEN JSON_VALUE(q.Headers, N'$."NServiceBus.EnclosedMessageTypes"') END AS message_type,
    CASE WHEN ISJSON(q.Headers) = 1 THEN JSON_VALUE(q.Headers, N'$."NServiceBus.TimeSent"') END AS time_sent,
    DATALENGTH(q.Body) AS body_bytes,
    -- as text in the database's code page: what is not ASCII may look strange, the bytes are as they were sent
    CAST(q.Body AS varchar(max)) AS readable_body,
    q.Headers AS headers
FROM dbo.[Sales] AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
ORDER BY q.RowVersion;
GO
