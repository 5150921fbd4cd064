-- One row per script that ran: the hash of its text, and the fingerprint of the object that it made.
IF OBJECT_ID(N'rowpost.journal', N'U') IS NULL
    CREATE TABLE rowpost.journal
    (
        script_name nvarchar(400) NOT NULL,
        script_kind varchar(10) NOT NULL,
        script_hash char(64) NOT NULL,
        object_kind varchar(10) NULL,
        object_name nvarchar(520) NULL,
        object_fingerprint nvarchar(max) NULL,
        applied_at datetime2(3) NOT NULL,
        applied_by nvarchar(256) NOT NULL,
        CONSTRAINT journal_key PRIMARY KEY CLUSTERED (script_name)
    );
GO
