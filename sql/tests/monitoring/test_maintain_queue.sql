SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'monitoring_maintain_queue';
GO
CREATE OR ALTER PROCEDURE monitoring_maintain_queue.[test maintain_queue keeps every message]
AS
EXEC rowpost.[send_message:Sample] @headers = N'', @body = 0x01;
DECLARE @before int = (SELECT COUNT(*) FROM dbo.Sample AS s);

EXEC rowpost.[maintain_queue:Sample] @offline = 0;

DECLARE @after int = (SELECT COUNT(*) FROM dbo.Sample AS s);
EXEC tSQLt.AssertEquals @Expected = @before, @Actual = @after;
GO
CREATE OR ALTER PROCEDURE monitoring_maintain_queue.[test maintain_queue leaves the callers transaction open]
AS
DECLARE @before int = @@TRANCOUNT;

EXEC rowpost.[maintain_queue:Sample] @offline = 0;

DECLARE @after int = @@TRANCOUNT;
EXEC tSQLt.AssertEquals @Expected = @before, @Actual = @after;
GO
