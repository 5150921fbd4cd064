SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[list_sagas:{saga_key}]
    @count int, -- 1 to 1000
    @after_id uniqueidentifier = NULL -- only instances with a higher id
AS
/*
Reads the instances of a saga, one page at a time.
Atomicity: reads only.
Locking:   none that lasts; waits for a transaction that stores an instance.
Order:     by id.
*/
SET NOCOUNT, XACT_ABORT ON;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 1000
    THROW 51003, N'The number of sagas to list must be between 1 and 1000.', 1;

SELECT TOP (@count)
    s.Id AS id,
    CAST(s.[{correlation_column}] AS nvarchar(200)) AS correlation_value,
    s.Concurrency AS concurrency,
    s.SagaTypeVersion AS saga_type_version,
    s.Data AS data,
    s.Metadata AS metadata
FROM {saga_table} AS s
WHERE @after_id IS NULL OR s.Id > @after_id
ORDER BY s.Id
OPTION (RECOMPILE); -- with the value of @after_id in the plan, each page begins at its first id
GO
