SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER FUNCTION rowpost._is_operator() RETURNS bit
AS
/*
Returns whether the caller is a member of rowpost_operator, or has the rights of the owner of the schema rowpost.
Atomicity: reads only.
Locking:   none that lasts.
*/
BEGIN
    -- the caller's rights: ownership chaining does not change what HAS_PERMS_BY_NAME returns
    RETURN CASE WHEN IS_ROLEMEMBER(N'rowpost_operator') = 1 OR HAS_PERMS_BY_NAME(N'rowpost', N'SCHEMA', N'ALTER') = 1 THEN 1 ELSE 0 END;
END;
GO
