SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'monitoring_elect';
GO
CREATE OR ALTER PROCEDURE monitoring_elect.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE monitoring_elect.[test elect elects a session that asks alone and again]
AS
CREATE TABLE #elected (elected bit);

INSERT INTO #elected (elected)
EXEC rowpost.elect @duty = N'maintenance';
INSERT INTO #elected (elected)
EXEC rowpost.elect @duty = N'maintenance';

DECLARE @elected int = (SELECT COUNT(*) FROM #elected AS e WHERE e.elected = 1);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @elected;
GO
CREATE OR ALTER PROCEDURE monitoring_elect.[test elect elects one session for several duties]
AS
CREATE TABLE #elected (elected bit);

INSERT INTO #elected (elected)
EXEC rowpost.elect @duty = N'maintenance';
INSERT INTO #elected (elected)
EXEC rowpost.elect @duty = N'outbox';

DECLARE @elected int = (SELECT COUNT(*) FROM #elected AS e WHERE e.elected = 1);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @elected;
GO
CREATE OR ALTER PROCEDURE monitoring_elect.[test elect refuses a duty of 201 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51034;
DECLARE @long nvarchar(400) = REPLICATE(N'x', 201);

EXEC rowpost.elect @duty = @long;
GO
CREATE OR ALTER PROCEDURE monitoring_elect.[test elect leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.elect @duty = N'maintenance';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
