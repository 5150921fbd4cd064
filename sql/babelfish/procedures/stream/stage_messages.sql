SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.stage_messages
    @job_key nvarchar(200), -- 1 to 200 characters
    @attempt nvarchar(100), -- one try of one task
    @messages nvarchar(max), -- JSON array as send_messages takes it; staged messages never expire
    @bodies varbinary(max) = NULL -- the bodies, one after another; body_start counts from 1
AS
/*
Stores messages of a job that sends all of them at its end.
Atomicity: one INSERT in the caller's transaction.
Locking:   none beyond the new rows.
Order:     numbers grow with the ordinal.
Babelfish: OPENJSON cuts nvarchar(max) after 4,000 characters and leaves escapes as they are; PostgreSQL's own function
reads the headers.
*/
SET NOCOUNT, XACT_ABORT ON;

IF LEN(ISNULL(@job_key, N'')) = 0
    THROW 51032, N'A job key has 1 to 200 characters.', 1;

IF ISNULL(LEFT(@messages, 1), N'') <> N'['
    THROW 51006, N'@messages must be a JSON array of messages.', 1;

INSERT INTO rowpost.staged_message (job_key, attempt, id, headers, body, staged_at)
SELECT
    @job_key,
    @attempt,
    m.id,
    CAST(pg_catalog.json_object_field_text(CAST(j.[value] AS json), N'headers') AS nvarchar(max)),
    SUBSTRING(@bodies, m.body_start, m.body_length),
    SYSUTCDATETIME()
FROM OPENJSON(@messages) AS j
CROSS APPLY OPENJSON(j.[value]) WITH
(
    ordinal int,
    body_start bigint,
    body_length bigint,
    id uniqueidentifier
) AS m
ORDER BY m.ordinal;
GO
