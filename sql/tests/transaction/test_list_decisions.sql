SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'transaction_list_decisions';
GO
CREATE OR ALTER PROCEDURE transaction_list_decisions.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE transaction_list_decisions.[test list_decisions returns each decision]
AS
CREATE TABLE #listed (transaction_id varchar(64), participants nvarchar(max), queue_key nvarchar(128) NOT NULL, decided_at datetime2(3));
INSERT INTO rowpost.decision (transaction_id, participants, queue_key, decided_at)
VALUES
('tx-1', N'["b"]', N'Sample', '2024-01-02T00:00:00.000'),
('tx-2', N'["a"]', N'Sample', '2024-01-01T00:00:00.000');

INSERT INTO #listed (transaction_id, participants, queue_key, decided_at)
EXEC rowpost.list_decisions;

DECLARE @right int = (
    SELECT COUNT(*)
    FROM #listed AS l
    WHERE (l.transaction_id = 'tx-2' AND l.participants = N'["a"]' AND l.decided_at = '2024-01-01T00:00:00.000')
       OR (l.transaction_id = 'tx-1' AND l.participants = N'["b"]' AND l.decided_at = '2024-01-02T00:00:00.000')
);
EXEC tSQLt.AssertEquals @Expected = 2, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE transaction_list_decisions.[test list_decisions returns nothing without decisions]
AS
CREATE TABLE #listed (transaction_id varchar(64), participants nvarchar(max), queue_key nvarchar(128) NOT NULL, decided_at datetime2(3));

INSERT INTO #listed (transaction_id, participants, queue_key, decided_at)
EXEC rowpost.list_decisions;

EXEC tSQLt.AssertEmptyTable @TableName = N'#listed';
GO
CREATE OR ALTER PROCEDURE transaction_list_decisions.[test list_decisions leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.list_decisions;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
