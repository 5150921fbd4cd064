SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[correlate_sagas:{saga_key}]
    @count int, -- instances at most, 1 to 1000
    @after_id uniqueidentifier = NULL -- only instances with a higher id
AS
/*
Stores the second correlation value of instances that have none, if their states contain the value.
Reads one page of instances. The next call continues after last_id, so that no instance is read twice.
Atomicity: one UPDATE in the caller's transaction.
Locking:   the rows that it writes; waits for a session that has locked one. Versions of states do not change.
Order:     one row: how many were written, how many of the page still have no second correlation value, and the last id of
           the page by id; NULL if there is no further instance.
*/
SET NOCOUNT, XACT_ABORT ON;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 1000
    THROW 51003, N'The number of sagas to correlate must be between 1 and 1000.', 1;

DECLARE @correlated int;
DECLARE @above uniqueidentifier = ISNULL(@after_id, '00000000-0000-0000-0000-000000000000'); -- no instance has this id
DECLARE @last uniqueidentifier = (
    SELECT TOP (1) p.Id
    FROM (SELECT TOP (@count) s.Id FROM {saga_table} AS s WHERE s.Id > @above ORDER BY s.Id) AS p
    ORDER BY p.Id DESC
);
DECLARE @wrong uniqueidentifier = (
    SELECT TOP (1) s.Id
    FROM {saga_table} AS s
    OUTER APPLY
    (
        SELECT j.[value]
        FROM OPENJSON(CASE WHEN ISJSON(s.Data) = 1 THEN s.Data END) AS j
        WHERE j.[key] = N'{transitional_name}' AND j.[type] BETWEEN 1 AND 3 AND j.[value] <> N''
    ) AS found
    WHERE s.Id > @above
      AND s.Id <= @last
      AND s.[{transitional_column}] IS NULL
      AND
      (
          ISJSON(s.Data) = 0
          OR LEN(CONCAT(found.[value], N'.')) > 201
          OR (found.[value] IS NOT NULL AND TRY_CAST(found.[value] AS {transitional_type}) IS NULL)
      )
    ORDER BY s.Id
);

IF @wrong IS NOT NULL
BEGIN
    DECLARE @message nvarchar(2048) = CONCAT(
        N'The second correlation of the saga ', @wrong, N' cannot be stored: its state is no JSON,',
        N' or its {transitional_name} is no {transitional_type}, or longer than 200 characters. Correct it.'
    );
    SET @message = REPLACE(@message, N'%', N'%%'); -- THROW reads % as the start of a placeholder
    THROW 51014, @message, 1;
END;

BEGIN TRY
    -- rule bounded_change: the page has at most @count instances, 1,000.
    -- rule lock_escalation: 1,000 instances on a page each hold 4,000 locks, with those of the index on the new column.
    UPDATE s
    SET s.[{transitional_column}] = CAST(j.[value] AS {transitional_type})
    FROM {saga_table} AS s WITH (ROWLOCK)
    CROSS APPLY OPENJSON(CASE WHEN ISJSON(s.Data) = 1 THEN s.Data END) AS j
    WHERE s.Id > @above
      AND s.Id <= @last
      AND s.[{transitional_column}] IS NULL
      AND j.[key] = N'{transitional_name}'
      AND j.[type] BETWEEN 1 AND 3
      AND j.[value] <> N'';

    SET @correlated = @@ROWCOUNT;
END TRY
BEGIN CATCH
    IF ERROR_NUMBER() IN (2601, 2627)
    BEGIN
        SET @message = REPLACE(
            N'The second correlation cannot be stored: two instances have the same {transitional_name}. Correct the state of one of them.', N'%', N'%%'
        );
        THROW 51015, @message, 1;
    END;

    THROW;
END CATCH;

SELECT
    @correlated AS correlated,
    COUNT(*) AS missing,
    @last AS last_id
FROM {saga_table} AS s
WHERE s.Id > @above
  AND s.Id <= @last
  AND s.[{transitional_column}] IS NULL;
GO
