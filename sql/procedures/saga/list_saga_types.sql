SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.list_saga_types
AS
/*
Lists the types of sagas that have a table here.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by name.
*/
SET NOCOUNT, XACT_ABORT ON;

SELECT
    s.saga_name,
    s.saga_key,
    s.schema_name,
    s.table_name,
    s.correlation_name,
    s.correlation_type,
    s.transitional_name,
    s.transitional_type
FROM rowpost.saga AS s
ORDER BY s.saga_name;
GO
