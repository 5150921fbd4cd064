SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'delayed_read_delayed_bodies';
GO
CREATE OR ALTER PROCEDURE delayed_read_delayed_bodies.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE delayed_read_delayed_bodies.[test read_delayed_bodies returns the beginnings of the bodies that were asked for]
AS
CREATE TABLE #browsed (delayed_key nvarchar(60), due datetime2(3), headers nvarchar(max), body_bytes bigint);
CREATE TABLE #bodies (delayed_key nvarchar(60), body varbinary(max));
EXEC rowpost.[delay_message:Sample] @headers = N'late', @body = 0x0102, @delay_ms = 7200000;
EXEC rowpost.[delay_message:Sample] @headers = N'soon', @body = 0x010203, @delay_ms = 3600000;
INSERT INTO #browsed (delayed_key, due, headers, body_bytes)
EXEC rowpost.[browse_delayed:Sample] @count = 1;
DECLARE @key nvarchar(60) = (SELECT b.delayed_key FROM #browsed AS b);
DECLARE @wanted nvarchar(max) = CONCAT(N'["', @key, N'","x"]');

INSERT INTO #bodies (delayed_key, body)
EXEC rowpost.[read_delayed_bodies:Sample] @delayed_keys = @wanted, @max_body_bytes = 2;

DECLARE @right int = (SELECT COUNT(*) FROM #bodies AS b WHERE b.delayed_key = @key AND b.body = 0x0102);
DECLARE @all int = (SELECT COUNT(*) FROM #bodies AS b);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @all;
GO
CREATE OR ALTER PROCEDURE delayed_read_delayed_bodies.[test read_delayed_bodies leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[read_delayed_bodies:Sample] @delayed_keys = N'["x"]';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
