SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'queue_send_messages';
GO
CREATE OR ALTER PROCEDURE queue_send_messages.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE queue_send_messages.[test send_messages stores rows by ordinal with their bodies]
AS
DECLARE @messages nvarchar(max) = N'[{"ordinal":1,"headers":"second","body_start":3,"body_length":1},'
    + N'{"ordinal":0,"headers":"first","body_start":1,"body_length":2}]';

EXEC rowpost.[send_messages:Sample] @messages = @messages, @bodies = 0x0102FF;

DECLARE @first nvarchar(max) = (SELECT TOP (1) s.Headers FROM dbo.Sample AS s ORDER BY s.RowVersion);
DECLARE @first_body varbinary(10) = (SELECT TOP (1) CAST(s.Body AS varbinary(10)) FROM dbo.Sample AS s ORDER BY s.RowVersion);
DECLARE @last_body varbinary(10) = (
    SELECT TOP (1) CAST(s.Body AS varbinary(10)) FROM dbo.Sample AS s ORDER BY s.RowVersion DESC
);
EXEC tSQLt.AssertEqualsString @Expected = N'first', @Actual = @first;
EXEC tSQLt.AssertEquals @Expected = 0x0102, @Actual = @first_body;
EXEC tSQLt.AssertEquals @Expected = 0xFF, @Actual = @last_body;
GO
CREATE OR ALTER PROCEDURE queue_send_messages.[test send_messages stores headers of any length and letters]
AS
DECLARE @long nvarchar(max) = REPLICATE(CAST(N'x' AS nvarchar(max)), 9000);
DECLARE @headers nvarchar(max) = CONCAT(N'{"a":"漢🚀 / \" \\ \n', @long, N'"}');
DECLARE @messages nvarchar(max) = CONCAT(N'[{"ordinal":0,"headers":"{\"a\":\"漢🚀 / \\\" \\\\ \\n', @long, N'\"}"}]');

EXEC rowpost.[send_messages:Sample] @messages = @messages;

DECLARE @stored nvarchar(max) = (SELECT s.Headers FROM dbo.Sample AS s);
EXEC tSQLt.AssertEqualsString @Expected = @headers, @Actual = @stored;
GO
CREATE OR ALTER PROCEDURE queue_send_messages.[test send_messages keeps a missing body apart from an empty one]
AS
DECLARE @messages nvarchar(max) = N'[{"ordinal":0,"headers":"null"},'
    + N'{"ordinal":1,"headers":"empty","body_start":1,"body_length":0}]';

EXEC rowpost.[send_messages:Sample] @messages = @messages, @bodies = 0x;

DECLARE @nulls int = (SELECT COUNT(*) FROM dbo.Sample AS s WHERE s.Headers = N'null' AND s.Body IS NULL);
DECLARE @empties int = (SELECT COUNT(*) FROM dbo.Sample AS s WHERE s.Headers = N'empty' AND DATALENGTH(s.Body) = 0);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @nulls;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @empties;
GO
CREATE OR ALTER PROCEDURE queue_send_messages.[test send_messages takes ids and times and old columns where given]
AS
DECLARE @messages nvarchar(max) = N'[{"ordinal":0,"headers":"","id":"AAAAAAAA-0000-0000-0000-000000000001",'
    + N'"time_to_be_received_ms":5184000000,"correlation_id":"c","reply_to_address":"Billing@[dbo]"},'
    + N'{"ordinal":1,"headers":""}]';

EXEC rowpost.[send_messages:Sample] @messages = @messages;

DECLARE @as_given int = (
    SELECT COUNT(*)
    FROM dbo.Sample AS s
    WHERE s.Id = 'aaaaaaaa-0000-0000-0000-000000000001'
      AND s.CorrelationId = 'c'
      AND s.ReplyToAddress = 'Billing@[dbo]'
      AND DATEDIFF(DAY, GETUTCDATE(), s.Expires) = 60
);
DECLARE @by_default int = (
    SELECT COUNT(*)
    FROM dbo.Sample AS s
    WHERE s.Id <> 'aaaaaaaa-0000-0000-0000-000000000001'
      AND s.CorrelationId IS NULL
      AND s.Expires IS NULL
      AND s.Recoverable = 1
);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @as_given;
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @by_default;
GO
CREATE OR ALTER PROCEDURE queue_send_messages.[test send_messages takes an empty array]
AS
EXEC rowpost.[send_messages:Sample] @messages = N'[]';

EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.Sample';
GO
CREATE OR ALTER PROCEDURE queue_send_messages.[test send_messages refuses what is no array]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51006;

EXEC rowpost.[send_messages:Sample] @messages = N'{"ordinal":0,"headers":""}';
GO
CREATE OR ALTER PROCEDURE queue_send_messages.[test send_messages refuses NULL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51006;

EXEC rowpost.[send_messages:Sample] @messages = NULL;
GO
CREATE OR ALTER PROCEDURE queue_send_messages.[test send_messages refuses all for one bad time]
AS
DECLARE @messages nvarchar(max) = N'[{"ordinal":0,"headers":"good"},{"ordinal":1,"headers":"bad","time_to_be_received_ms":-1}]';
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51004;

EXEC rowpost.[send_messages:Sample] @messages = @messages;
GO
CREATE OR ALTER PROCEDURE queue_send_messages.[test send_messages refuses a message without headers]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 515;

EXEC rowpost.[send_messages:Sample] @messages = N'[{"ordinal":0}]';
GO
CREATE OR ALTER PROCEDURE queue_send_messages.[test send_messages takes text that looks like SQL as text]
AS
DECLARE @messages nvarchar(max) = N'[{"ordinal":0,"headers":"''); DELETE FROM dbo.Sample; --","correlation_id":"'' OR 1=1 --"}]';

EXEC rowpost.[send_messages:Sample] @messages = @messages;

DECLARE @stored nvarchar(max) = (SELECT s.Headers FROM dbo.Sample AS s);
EXEC tSQLt.AssertEqualsString @Expected = N'''); DELETE FROM dbo.Sample; --', @Actual = @stored;
GO
CREATE OR ALTER PROCEDURE queue_send_messages.[test send_messages is undone by the callers rollback]
AS
SAVE TRANSACTION before_it;

EXEC rowpost.[send_messages:Sample] @messages = N'[{"ordinal":0,"headers":""}]';
ROLLBACK TRANSACTION before_it;

EXEC tSQLt.AssertEmptyTable @TableName = N'dbo.Sample';
GO
CREATE OR ALTER PROCEDURE queue_send_messages.[test send_messages leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.[send_messages:Sample] @messages = N'[{"ordinal":0,"headers":""}]';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
