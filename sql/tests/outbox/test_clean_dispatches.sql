SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'outbox_clean_dispatches';
GO
CREATE OR ALTER PROCEDURE outbox_clean_dispatches.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE outbox_clean_dispatches.[test clean_dispatches forgets what is older and nothing else]
AS
CREATE TABLE #removed (removed int);
INSERT INTO rowpost.dispatch (endpoint, message_id, dispatched_at)
VALUES
(N'Sales', N'old', DATEADD(DAY, -8, SYSUTCDATETIME())),
(N'Sales', N'older', DATEADD(DAY, -9, SYSUTCDATETIME())),
(N'Sales', N'young', DATEADD(DAY, -6, SYSUTCDATETIME()));

INSERT INTO #removed (removed)
EXEC rowpost.clean_dispatches @retention_seconds = 604800, @count = 10;

DECLARE @removed int = (SELECT r.removed FROM #removed AS r);
DECLARE @left nvarchar(200) = (SELECT d.message_id FROM rowpost.dispatch AS d);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @removed;
EXEC tSQLt.AssertEqualsString @Expected = N'young', @Actual = @left;
GO
CREATE OR ALTER PROCEDURE outbox_clean_dispatches.[test clean_dispatches forgets the oldest first and no more than asked for]
AS
INSERT INTO rowpost.dispatch (endpoint, message_id, dispatched_at)
VALUES
(N'Sales', N'old', DATEADD(DAY, -8, SYSUTCDATETIME())),
(N'Sales', N'older', DATEADD(DAY, -9, SYSUTCDATETIME())),
(N'Sales', N'young', DATEADD(DAY, -6, SYSUTCDATETIME()));

EXEC rowpost.clean_dispatches @retention_seconds = 604800, @count = 1;

DECLARE @older int = (SELECT COUNT(*) FROM rowpost.dispatch AS d WHERE d.message_id = N'older');
DECLARE @left int = (SELECT COUNT(*) FROM rowpost.dispatch AS d);
EXEC tSQLt.AssertEquals @Expected = 0, @Actual = @older;
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @left;
GO
CREATE OR ALTER PROCEDURE outbox_clean_dispatches.[test clean_dispatches refuses a count of zero]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.clean_dispatches @retention_seconds = 1, @count = 0;
GO
CREATE OR ALTER PROCEDURE outbox_clean_dispatches.[test clean_dispatches refuses a count of 4001]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.clean_dispatches @retention_seconds = 1, @count = 4001;
GO
CREATE OR ALTER PROCEDURE outbox_clean_dispatches.[test clean_dispatches refuses a count of NULL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.clean_dispatches @retention_seconds = 1, @count = NULL;
GO
CREATE OR ALTER PROCEDURE outbox_clean_dispatches.[test clean_dispatches refuses a retention time that is negative]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.clean_dispatches @retention_seconds = -1, @count = 1;
GO
CREATE OR ALTER PROCEDURE outbox_clean_dispatches.[test clean_dispatches refuses a retention time of NULL]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51003;

EXEC rowpost.clean_dispatches @retention_seconds = NULL, @count = 1;
GO
CREATE OR ALTER PROCEDURE outbox_clean_dispatches.[test clean_dispatches is undone by the callers rollback]
AS
INSERT INTO rowpost.dispatch (endpoint, message_id, dispatched_at)
VALUES
(N'Sales', N'old', DATEADD(DAY, -8, SYSUTCDATETIME())),
(N'Sales', N'older', DATEADD(DAY, -9, SYSUTCDATETIME())),
(N'Sales', N'young', DATEADD(DAY, -6, SYSUTCDATETIME()));
SAVE TRANSACTION before_it;

EXEC rowpost.clean_dispatches @retention_seconds = 604800, @count = 10;
ROLLBACK TRANSACTION before_it;

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.dispatch AS d);
EXEC tSQLt.AssertEquals @Expected = 3, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE outbox_clean_dispatches.[test clean_dispatches leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.clean_dispatches @retention_seconds = 604800, @count = 10;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
