SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'monitoring_queue_metrics';
GO
CREATE OR ALTER PROCEDURE monitoring_queue_metrics.[test queue_metrics reads and removes nothing]
AS
EXEC rowpost.[send_message:Sample] @headers = N'', @body = 0x01;
DECLARE @before int = (SELECT COUNT(*) FROM dbo.Sample AS s);

EXEC rowpost.[queue_metrics:Sample];

DECLARE @after int = (SELECT COUNT(*) FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = @before, @Actual = @after;
GO
CREATE OR ALTER PROCEDURE monitoring_queue_metrics.[test queue_metrics leaves the callers transaction open]
AS
DECLARE @before int = @@TRANCOUNT;

EXEC rowpost.[queue_metrics:Sample];

DECLARE @after int = @@TRANCOUNT;
EXEC tSQLt.AssertEquals @Expected = @before, @Actual = @after;
GO
