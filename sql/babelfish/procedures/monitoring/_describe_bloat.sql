SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER FUNCTION rowpost._describe_bloat(
    @table_id int
)
RETURNS nvarchar(200)
AS
/*
Says how a table that takes far more room than its rows need is bloated; NULL when it is not.
Babelfish: its catalog knows no pages and no rows of a table.
*/
BEGIN
    RETURN NULL;
END;
GO
