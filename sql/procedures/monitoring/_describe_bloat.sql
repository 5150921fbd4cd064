SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER FUNCTION rowpost._describe_bloat(
    @table_id int
)
RETURNS nvarchar(200)
AS
/*
Describes the bloat of a table that uses much more space than its rows need; returns nothing if it is not bloated.
Reads the catalog: it scans no table and needs no right to the server's state.
*/
BEGIN
    DECLARE @pages bigint;
    DECLARE @rows bigint;

    SELECT @pages = SUM(a.used_pages), @rows = SUM(p.rows)
    FROM sys.partitions AS p
    INNER JOIN sys.allocation_units AS a
        ON p.hobt_id = a.container_id AND a.type = 1 -- rows without their long values
    WHERE p.object_id = @table_id
      AND p.index_id IN (0, 1);

    -- At least 10 MB, and less than one row in four pages. A row uses at most one page.
    RETURN CASE
        WHEN @pages >= 1280 AND @rows < @pages / 4 THEN CONCAT(@pages, N' pages of 8 KB hold ', @rows, N' messages.')
    END;
END;
GO
