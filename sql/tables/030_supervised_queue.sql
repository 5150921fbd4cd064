-- Which supervisors receive from a queue. A limit that they share is divided among those that are alive.
IF OBJECT_ID(N'rowpost.supervised_queue', N'U') IS NULL
BEGIN
    CREATE TABLE rowpost.supervised_queue
    (
        queue_key nvarchar(128) NOT NULL,
        supervisor_id uniqueidentifier NOT NULL,
        CONSTRAINT supervised_queue_key PRIMARY KEY CLUSTERED (queue_key, supervisor_id)
    );

    -- A supervisor's own rows, which each of its reports reads.
    CREATE NONCLUSTERED INDEX supervised_queue_supervisor ON rowpost.supervised_queue (supervisor_id);
END;
GO
