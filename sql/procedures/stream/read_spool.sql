SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[read_spool:{queue_key}]
    @above bigint, -- only messages with a higher number
    @upto bigint, -- and not above this one
    @with_headers bit = NULL, -- NULL: yes; without: ''
    @with_body bit = NULL -- NULL: yes; without: NULL
AS
/*
Reads a range of the spool, as read_range reads one of the queue.
It may be called again: the messages stay the same until drop_spool.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by number.
*/
SET NOCOUNT, XACT_ABORT ON;

SELECT
    m.id AS id,
    m.correlation_id AS correlation_id,
    m.reply_to_address AS reply_to_address,
    m.recoverable AS recoverable,
    m.expires AS expires,
    CASE WHEN ISNULL(@with_headers, 1) = 1 THEN m.headers ELSE N'' END AS headers,
    CASE WHEN ISNULL(@with_body, 1) = 1 THEN m.body END AS body,
    m.row_version AS row_version
FROM rowpost.spooled_message AS m
WHERE m.queue_key = N'{queue_key}' AND m.number > @above AND m.number <= @upto
ORDER BY m.number
OPTION (MAXDOP 1);
GO
