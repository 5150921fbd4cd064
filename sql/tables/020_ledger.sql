-- The parts of jobs that were sent: one row per part, committed together with the part's messages. If a part is sent
-- again, by a retry or by the whole job with the same key, it is found here and skipped. The job belongs to the login that sends it.
IF OBJECT_ID(N'rowpost.ledger', N'U') IS NULL -- noqa: PRS
BEGIN
    CREATE TABLE rowpost.ledger
    (
        job_key nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
        part bigint NOT NULL,
        parts bigint NULL,
        messages bigint NULL,
        digest varchar(64) NULL,
        claimed_at datetime2(3) NOT NULL,
        owner_login nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL CONSTRAINT ledger_login DEFAULT (ORIGINAL_LOGIN()),
        CONSTRAINT ledger_key PRIMARY KEY CLUSTERED (job_key, part)
    );

    -- All streams share this table.
    ALTER TABLE rowpost.ledger SET (LOCK_ESCALATION = DISABLE);
END;
GO
