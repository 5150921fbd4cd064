-- The parts of jobs that are being sent: which attempt of each task counts, and what it stored. They are deleted when the job is done.
IF OBJECT_ID(N'rowpost.job_part', N'U') IS NULL
    CREATE TABLE rowpost.job_part
    (
        job_key nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
        part bigint NOT NULL,
        attempt nvarchar(100) COLLATE Latin1_General_100_BIN2 NOT NULL,
        messages bigint NOT NULL,
        digest varchar(64) NOT NULL,
        CONSTRAINT job_part_pk PRIMARY KEY CLUSTERED (job_key, part)
    );
GO
