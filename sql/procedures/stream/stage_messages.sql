SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.stage_messages
    @job_key nvarchar(200), -- 1 to 200 characters
    @attempt nvarchar(100), -- one attempt of one task
    @messages nvarchar(max), -- JSON array as send_messages takes it; staged messages never expire
    @bodies varbinary(max) = NULL -- the bodies, one after another; body_start counts from 1
AS
/*
Stores messages of a job that sends all its messages at its end.
Atomicity: one INSERT in the caller's transaction.
Locking:   only the new rows.
Order:     numbers increase with the ordinal.
*/
SET NOCOUNT, XACT_ABORT ON;

IF LEN(ISNULL(@job_key, N'')) = 0
    THROW 51032, N'The messages cannot be staged: a job key must have 1 to 200 characters.', 1;

IF ISNULL(LEFT(@messages, 1), N'') <> N'['
    THROW 51006, N'The messages cannot be stored: @messages must be a JSON array.', 1;

INSERT INTO rowpost.staged_message (job_key, attempt, id, headers, body, staged_at)
SELECT @job_key, @attempt, m.id, m.headers, SUBSTRING(@bodies, m.body_start, m.body_length), SYSUTCDATETIME()
FROM OPENJSON(@messages) WITH
(
    ordinal int,
    headers nvarchar(max),
    body_start bigint,
    body_length bigint,
    id uniqueidentifier
) AS m
ORDER BY m.ordinal;
GO
