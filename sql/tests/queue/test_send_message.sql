SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'queue_send_message';
GO
CREATE OR ALTER PROCEDURE queue_send_message.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE queue_send_message.[test send_message stores one row as given]
AS
DECLARE @id uniqueidentifier = 'aaaaaaaa-0000-0000-0000-000000000001';

EXEC rowpost.[send_message:Sample] @headers = N'{"a":"漢🚀"}', @body = 0x00FF7B, @id = @id;

DECLARE @rows int = (SELECT COUNT(*) FROM dbo.Sample AS s);
DECLARE @stored_id uniqueidentifier = (SELECT s.Id FROM dbo.Sample AS s);
DECLARE @stored_headers nvarchar(max) = (SELECT s.Headers FROM dbo.Sample AS s);
DECLARE @stored_body varbinary(100) = (SELECT CAST(s.Body AS varbinary(100)) FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
EXEC tSQLt.AssertEquals @Expected = @id, @Actual = @stored_id;
EXEC tSQLt.AssertEqualsString @Expected = N'{"a":"漢🚀"}', @Actual = @stored_headers;
EXEC tSQLt.AssertEquals @Expected = 0x00FF7B, @Actual = @stored_body;
GO
CREATE OR ALTER PROCEDURE queue_send_message.[test send_message makes a new id for each message]
AS
EXEC rowpost.[send_message:Sample] @headers = N'';
EXEC rowpost.[send_message:Sample] @headers = N'';

DECLARE @ids int = (SELECT COUNT(DISTINCT s.Id) FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @ids;
GO
CREATE OR ALTER PROCEDURE queue_send_message.[test send_message gives growing row versions]
AS
EXEC rowpost.[send_message:Sample] @headers = N'first';
EXEC rowpost.[send_message:Sample] @headers = N'second';

DECLARE @last nvarchar(max) = (SELECT TOP (1) s.Headers FROM dbo.Sample AS s ORDER BY s.RowVersion DESC);
EXEC tSQLt.AssertEqualsString @Expected = N'second', @Actual = @last;
GO
CREATE OR ALTER PROCEDURE queue_send_message.[test send_message keeps a NULL body apart from an empty one]
AS
EXEC rowpost.[send_message:Sample] @headers = N'null', @body = NULL;
EXEC rowpost.[send_message:Sample] @headers = N'empty', @body = 0x;

DECLARE @nulls int = (SELECT COUNT(*) FROM dbo.Sample AS s WHERE s.Headers = N'null' AND s.Body IS NULL);
DECLARE @empties int = (SELECT COUNT(*) FROM dbo.Sample AS s WHERE s.Headers = N'empty' AND DATALENGTH(s.Body) = 0);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @nulls;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @empties;
GO
CREATE OR ALTER PROCEDURE queue_send_message.[test send_message fills the columns of old transports]
AS
EXEC rowpost.[send_message:Sample] @headers = N'', @correlation_id = 'c', @reply_to_address = 'Billing@[dbo]';

DECLARE @recoverable bit = (SELECT s.Recoverable FROM dbo.Sample AS s);
DECLARE @correlation_id nvarchar(255) = (SELECT s.CorrelationId FROM dbo.Sample AS s);
DECLARE @reply_to_address nvarchar(255) = (SELECT s.ReplyToAddress FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @recoverable;
EXEC tSQLt.AssertEqualsString @Expected = N'c', @Actual = @correlation_id;
EXEC tSQLt.AssertEqualsString @Expected = N'Billing@[dbo]', @Actual = @reply_to_address;
GO
CREATE OR ALTER PROCEDURE queue_send_message.[test send_message leaves Expires NULL without a time]
AS
EXEC rowpost.[send_message:Sample] @headers = N'';

DECLARE @unlimited int = (SELECT COUNT(*) FROM dbo.Sample AS s WHERE s.Expires IS NULL);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @unlimited;
GO
CREATE OR ALTER PROCEDURE queue_send_message.[test send_message reckons Expires for sixty days]
AS
DECLARE @before datetime = GETUTCDATE();

EXEC rowpost.[send_message:Sample] @headers = N'', @time_to_be_received_ms = 5184000500;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM dbo.Sample AS s
    WHERE s.Expires BETWEEN DATEADD(DAY, 60, @before) AND DATEADD(SECOND, 30, DATEADD(DAY, 60, GETUTCDATE()))
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE queue_send_message.[test send_message takes a time of one hundred years]
AS
EXEC rowpost.[send_message:Sample] @headers = N'', @time_to_be_received_ms = 3155760000000;

DECLARE @years int = (SELECT DATEDIFF(YEAR, GETUTCDATE(), s.Expires) FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = 100, @Actual = @years;
GO
CREATE OR ALTER PROCEDURE queue_send_message.[test send_message refuses a time of zero]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51004;

EXEC rowpost.[send_message:Sample] @headers = N'', @time_to_be_received_ms = 0;
GO
CREATE OR ALTER PROCEDURE queue_send_message.[test send_message refuses a time beyond the calendar]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51004;

EXEC rowpost.[send_message:Sample] @headers = N'', @time_to_be_received_ms = 3155760000001;
GO
CREATE OR ALTER PROCEDURE queue_send_message.[test send_message refuses headers that are NULL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 515;

EXEC rowpost.[send_message:Sample] @headers = NULL;
GO
CREATE OR ALTER PROCEDURE queue_send_message.[test send_message takes text that looks like SQL as text]
AS
DECLARE @text nvarchar(max) = N'''); DELETE FROM dbo.Sample; --';

EXEC rowpost.[send_message:Sample] @headers = N'kept';
EXEC rowpost.[send_message:Sample] @headers = @text;

DECLARE @stored nvarchar(max) = (SELECT TOP (1) s.Headers FROM dbo.Sample AS s ORDER BY s.RowVersion DESC);
DECLARE @rows int = (SELECT COUNT(*) FROM dbo.Sample AS s);
EXEC tSQLt.AssertEqualsString @Expected = @text, @Actual = @stored;
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE queue_send_message.[test send_message is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.[send_message:Sample] @headers = N'';
ROLLBACK TRANSACTION before_it;

EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.Sample';
GO
CREATE OR ALTER PROCEDURE queue_send_message.[test send_message leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[send_message:Sample] @headers = N'';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
