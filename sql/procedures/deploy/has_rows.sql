SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.has_rows
    @script_name nvarchar(800)
WITH EXECUTE AS 'rowpost_internal'
AS
/*
Returns whether the table that a script of the journal made has rows, and exists.
Atomicity: reads only.
Locking:   none that lasts.
Rights:    runs as a user of its own, because dynamic SQL has no ownership chain. The journal names the tables that it may read.
It skips rows that others lock. A deployment therefore locks the table and looks again before it drops it.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

DECLARE @has_rows bit = 0;
DECLARE @table nvarchar(520) = (
    SELECT j.object_name
    FROM rowpost.journal AS j
    WHERE j.script_name = @script_name
      AND j.object_kind = 'table'
      AND OBJECT_ID(j.object_name, N'U') IS NOT NULL
);
DECLARE @statement nvarchar(1000) = CONCAT(N'IF EXISTS (SELECT 1 FROM ', @table, N' WITH (READPAST, READCOMMITTEDLOCK)) SET @has_rows = 1;');

IF @table IS NOT NULL
    EXEC sys.sp_executesql @statement, N'@has_rows bit OUTPUT', @has_rows = @has_rows OUTPUT;

SELECT @has_rows AS has_rows;
GO
