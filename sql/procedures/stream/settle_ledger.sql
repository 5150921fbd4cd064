SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.settle_ledger
    @job_key nvarchar(200),
    @part bigint,
    @messages bigint, -- how many were sent
    @digest varchar(64) -- of the messages, in any order
AS
/*
Stores for a claimed part what was sent, so that a repetition differs from other data with the same key.
Atomicity: in the caller's transaction, with the claim and the messages.
Locking:   the part's row.
Only the login that claimed the part and operators change it.
*/
SET NOCOUNT, XACT_ABORT ON;

UPDATE l
SET l.messages = @messages, l.digest = @digest
FROM rowpost.ledger AS l
WHERE l.job_key = @job_key AND l.part = @part AND l.messages IS NULL
  AND (l.owner_login = ORIGINAL_LOGIN() OR rowpost."_is_operator"() = 1);
GO
