SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'registry__queue_at';
GO
CREATE OR ALTER PROCEDURE registry__queue_at.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE registry__queue_at.[test _queue_at finds a queue by every spelling of its address]
AS
EXEC rowpost.register_queue
    @queue_key = N'Odd', @queue_name = N'Odd@[my]]schema]', @schema_name = N'my]schema', @table_name = N'Odd',
    @kind = 'external', @body_string = 0, @clustered = 0, @delayed = 0;

DECLARE @whole nvarchar(400) = CONCAT(N'Odd@[my]]schema]@', QUOTENAME(DB_NAME()));
DECLARE @by_name nvarchar(128) = rowpost."_queue_at"(N'Sample');
DECLARE @by_schema nvarchar(128) = rowpost."_queue_at"(N'Odd@[my]]schema]');
DECLARE @by_catalog nvarchar(128) = rowpost."_queue_at"(@whole);

EXEC tSQLt.AssertEqualsString @Expected = N'Sample', @Actual = @by_name;
EXEC tSQLt.AssertEqualsString @Expected = N'Odd', @Actual = @by_schema;
EXEC tSQLt.AssertEqualsString @Expected = N'Odd', @Actual = @by_catalog;
GO
CREATE OR ALTER PROCEDURE registry__queue_at.[test _queue_at tells a queue from that of another database]
AS
EXEC rowpost.register_queue
    @queue_key = N'Far', @queue_name = N'Far@[dbo]@[elsewhere]', @catalog_name = N'elsewhere', @schema_name = N'dbo', @table_name = N'Far',
    @kind = 'external', @body_string = 0, @clustered = 0, @delayed = 0;

DECLARE @there nvarchar(128) = rowpost."_queue_at"(N'Far@[dbo]@[elsewhere]');
DECLARE @here nvarchar(128) = rowpost."_queue_at"(N'Far@[dbo]');
DECLARE @unknown nvarchar(128) = rowpost."_queue_at"(N'Nowhere');
DECLARE @none nvarchar(128) = rowpost."_queue_at"(NULL);

EXEC tSQLt.AssertEqualsString @Expected = N'Far', @Actual = @there;
EXEC tSQLt.AssertEqualsString @Expected = NULL, @Actual = @here;
EXEC tSQLt.AssertEqualsString @Expected = NULL, @Actual = @unknown;
EXEC tSQLt.AssertEqualsString @Expected = NULL, @Actual = @none;
GO
