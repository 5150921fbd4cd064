-- Jobs that write to queues: one row per job key, with its latest run. The state is running, sending (all tasks have stored
-- their messages, and the parts in job_part are sent), done or failed. The job belongs to the login that began it.
IF OBJECT_ID(N'rowpost.job', N'U') IS NULL
    CREATE TABLE rowpost.job
    (
        job_key nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
        destination nvarchar(200) NOT NULL,
        run nvarchar(40) COLLATE Latin1_General_100_BIN2 NOT NULL,
        sending_mode nvarchar(20) NOT NULL,
        state nvarchar(20) COLLATE Latin1_General_100_BIN2 NOT NULL,
        started_by nvarchar(400) NULL,
        parts bigint NULL,
        messages bigint NULL,
        digest varchar(64) NULL,
        started_at datetime2(3) NOT NULL,
        changed_at datetime2(3) NOT NULL,
        owner_login nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL CONSTRAINT job_login DEFAULT (ORIGINAL_LOGIN()),
        CONSTRAINT job_pk PRIMARY KEY CLUSTERED (job_key)
    );
GO
