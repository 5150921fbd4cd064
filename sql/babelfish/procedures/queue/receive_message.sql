SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[receive_message:{queue_key}]
    @row_version bigint
AS
/*
Removes and returns one message by its row version; returns nothing if it is gone or somebody else holds it.
Atomicity: one DELETE in the caller's transaction; a rollback puts the message back in its place.
Locking:   steps over the row if another holds it, and never waits.
Order:     one row at most.
Babelfish: no CASE over deleted in OUTPUT; READPAST is ignored, so that it waits for the row's holder.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

DECLARE @received TABLE
(
    id uniqueidentifier NOT NULL,
    row_version bigint NOT NULL,
    expires datetime NULL,
    headers nvarchar(max) NOT NULL,
    body varbinary(max) NULL
);

DELETE q
OUTPUT deleted.Id, deleted.RowVersion, deleted.Expires, deleted.Headers, deleted.Body
INTO @received (id, row_version, expires, headers, body)
FROM {queue_table} AS q
WHERE q.RowVersion = @row_version;

SELECT
    r.id,
    r.row_version,
    CAST(CASE WHEN r.expires <= GETUTCDATE() THEN 1 ELSE 0 END AS bit) AS expired,
    r.headers,
    r.body
FROM @received AS r;
GO
