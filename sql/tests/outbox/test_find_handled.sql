SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'outbox_find_handled';
GO
CREATE OR ALTER PROCEDURE outbox_find_handled.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE outbox_find_handled.[test find_handled finds nothing of a message that nobody has handled]
AS
CREATE TABLE #found (operations nvarchar(max), age_ms bigint);
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-2';
EXEC rowpost.record_handled @endpoint = N'Billing', @message_id = N'm-1';

INSERT INTO #found (operations, age_ms)
EXEC rowpost.find_handled @endpoint = N'Sales', @message_id = N'm-1';

EXEC tSQLt.AssertEmptyTable @TableName = N'#found';
GO
CREATE OR ALTER PROCEDURE outbox_find_handled.[test find_handled finds a handled message of which all has left]
AS
CREATE TABLE #found (operations nvarchar(max), age_ms bigint);
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-1';

INSERT INTO #found (operations, age_ms)
EXEC rowpost.find_handled @endpoint = N'Sales', @message_id = N'm-1';

DECLARE @rows int = (SELECT COUNT(*) FROM #found AS f WHERE f.operations IS NULL AND f.age_ms BETWEEN 0 AND 60000);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE outbox_find_handled.[test find_handled finds what has not left]
AS
CREATE TABLE #found (operations nvarchar(max), age_ms bigint);
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-1';
EXEC rowpost.store_operations @endpoint = N'Sales', @message_id = N'm-1', @operations = N'[1]';

INSERT INTO #found (operations, age_ms)
EXEC rowpost.find_handled @endpoint = N'Sales', @message_id = N'm-1';

DECLARE @operations nvarchar(max) = (SELECT f.operations FROM #found AS f);
EXEC tSQLt.AssertEqualsString @Expected = N'[1]', @Actual = @operations;
GO
CREATE OR ALTER PROCEDURE outbox_find_handled.[test find_handled tells message ids apart by case]
AS
CREATE TABLE #found (operations nvarchar(max), age_ms bigint);
EXEC rowpost.record_handled @endpoint = N'Sales', @message_id = N'm-1';

INSERT INTO #found (operations, age_ms)
EXEC rowpost.find_handled @endpoint = N'Sales', @message_id = N'M-1';

EXEC tSQLt.AssertEmptyTable @TableName = N'#found';
GO
CREATE OR ALTER PROCEDURE outbox_find_handled.[test find_handled refuses a message id of 201 characters]
AS
DECLARE @long nvarchar(400) = REPLICATE(N'x', 201);
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51022;

EXEC rowpost.find_handled @endpoint = N'Sales', @message_id = @long;
GO
CREATE OR ALTER PROCEDURE outbox_find_handled.[test find_handled refuses an empty message id]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51022;

EXEC rowpost.find_handled @endpoint = N'Sales', @message_id = N'';
GO
CREATE OR ALTER PROCEDURE outbox_find_handled.[test find_handled refuses a message id of NULL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51022;

EXEC rowpost.find_handled @endpoint = N'Sales', @message_id = NULL;
GO
CREATE OR ALTER PROCEDURE outbox_find_handled.[test find_handled refuses an endpoint of 201 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51023;
DECLARE @endpoint nvarchar(400) = REPLICATE(N'x', 201);

EXEC rowpost.find_handled @endpoint = @endpoint, @message_id = N'm-1';
GO
CREATE OR ALTER PROCEDURE outbox_find_handled.[test find_handled leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.find_handled @endpoint = N'Sales', @message_id = N'm-1';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
