SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER FUNCTION rowpost._may_receive(@queue_key nvarchar(128)) RETURNS bit
AS
/*
Returns whether the caller may receive from a queue, as its own login or as an operator.
Atomicity: reads only.
Locking:   none that lasts.
Only operators may do so for a queue that is not registered.
*/
BEGIN
    DECLARE @receive nvarchar(300) = CONCAT(N'rowpost.', QUOTENAME(CONCAT(N'receive_messages:', @queue_key)));
    RETURN CASE WHEN HAS_PERMS_BY_NAME(@receive, N'OBJECT', N'EXECUTE') = 1 THEN 1 ELSE rowpost."_is_operator"() END;
END;
GO
