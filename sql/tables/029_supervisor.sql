-- The supervisors of all hosts, with their workers as they last reported them.
IF OBJECT_ID(N'rowpost.supervisor', N'U') IS NULL -- noqa: PRS
BEGIN
    CREATE TABLE rowpost.supervisor
    (
        supervisor_id uniqueidentifier NOT NULL,
        host_name nvarchar(200) NOT NULL,
        process_id int NOT NULL,
        environment nvarchar(200) NOT NULL,
        rowpost_version nvarchar(50) NOT NULL,
        login_name nvarchar(128) NOT NULL,
        started_at datetime2(3) NOT NULL,
        seen_at datetime2(3) NOT NULL,
        queues nvarchar(max) NOT NULL,
        workers nvarchar(max) NOT NULL,
        CONSTRAINT supervisor_key PRIMARY KEY CLUSTERED (supervisor_id)
    );

    -- Otherwise a statement that changes many rows would lock the table, and others would wait.
    ALTER TABLE rowpost.supervisor SET (LOCK_ESCALATION = DISABLE);
END;
GO
