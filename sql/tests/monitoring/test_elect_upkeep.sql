SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'monitoring_elect_upkeep';
GO
CREATE OR ALTER PROCEDURE monitoring_elect_upkeep.[test elect_upkeep elects a session that asks alone and again]
AS
CREATE TABLE #elected (elected bit);

INSERT INTO #elected (elected)
EXEC rowpost.elect_upkeep;
INSERT INTO #elected (elected)
EXEC rowpost.elect_upkeep;

DECLARE @elected int = (SELECT COUNT(*) FROM #elected AS e WHERE e.elected = 1);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @elected;
GO
CREATE OR ALTER PROCEDURE monitoring_elect_upkeep.[test elect_upkeep touches no transaction]
AS
DECLARE @before int = @@TRANCOUNT;
CREATE TABLE #elected (elected bit);

INSERT INTO #elected (elected)
EXEC rowpost.elect_upkeep;

DECLARE @after int = @@TRANCOUNT;
EXEC tSQLt.AssertEquals @Expected = @before, @Actual = @after;
GO
