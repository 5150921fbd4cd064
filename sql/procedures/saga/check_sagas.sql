SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.check_sagas
AS
/*
Finds the tables of sagas that their procedures cannot use, and returns the command that repairs each.
The catalog may have another collation than the database, as in Azure SQL Database: what is concatenated gets the database's.
Atomicity: reads only the catalog.
Locking:   none that lasts.
Order:     by saga.
*/
SET NOCOUNT, XACT_ABORT ON;

WITH sagas AS (
    SELECT
        s.saga_name,
        CONCAT(QUOTENAME(s.schema_name), N'.', QUOTENAME(s.table_name)) AS table_name,
        OBJECT_ID(CONCAT(QUOTENAME(s.schema_name), N'.', QUOTENAME(s.table_name)), N'U') AS table_id
    FROM rowpost.saga AS s
)
SELECT f.saga_name, f.finding, f.detail, f.remedy
FROM
(
    SELECT
        q.saga_name,
        N'table_missing' AS finding,
        CONCAT(N'The table ', q.table_name, N' does not exist, or you may not see it.') AS detail,
        N'rowpost apply' AS remedy
    FROM sagas AS q
    WHERE q.table_id IS NULL
    UNION ALL
    SELECT
        q.saga_name,
        N'owner_differs',
        CONCAT(
            QUOTENAME(USER_NAME(OBJECTPROPERTY(q.table_id, N'OwnerId'))) COLLATE database_default, N' owns the table, and ',
            QUOTENAME(USER_NAME(s.principal_id)) COLLATE database_default,
            N' the schema rowpost: a login that may only execute procedures is refused.'
        ),
        CASE
            WHEN s.principal_id = USER_ID(N'dbo') THEN CONCAT(
                N'ALTER AUTHORIZATION ON OBJECT::', q.table_name,
                N' TO dbo; -- removes all rights on the table: grant those of others again, then run rowpost apply'
            )
            ELSE N'ALTER AUTHORIZATION ON SCHEMA::rowpost TO dbo; -- then run rowpost apply'
        END
    FROM sagas AS q
    INNER JOIN sys.schemas AS s
        ON s.name = N'rowpost' AND OBJECTPROPERTY(q.table_id, N'OwnerId') <> s.principal_id
) AS f
ORDER BY f.saga_name, f.finding;
GO
