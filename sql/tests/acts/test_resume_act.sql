SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'acts_resume_act';
GO
CREATE OR ALTER PROCEDURE acts_resume_act.[test resume_act takes an act from a silent process]
AS
INSERT INTO rowpost.act (act_name, act_state, client, login_name, started_at, changed_at, done_count, gone_count, refused_count, executor)
VALUES (N'retry', N'running', N'test', N'x', SYSUTCDATETIME(), DATEADD(MINUTE, -5, SYSUTCDATETIME()), 0, 0, 0, 'aaaaaaaa-0000-0000-0000-000000000001');
DECLARE @act bigint = SCOPE_IDENTITY();

EXEC rowpost.resume_act @act_id = @act, @executor = 'aaaaaaaa-0000-0000-0000-000000000002';

DECLARE @right int = (SELECT COUNT(*) FROM rowpost.act AS a WHERE a.act_state = N'running' AND a.executor = 'aaaaaaaa-0000-0000-0000-000000000002');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE acts_resume_act.[test resume_act leaves an act to a process that reports]
AS
INSERT INTO rowpost.act (act_name, act_state, client, login_name, started_at, changed_at, done_count, gone_count, refused_count, executor)
VALUES (N'retry', N'running', N'test', N'x', SYSUTCDATETIME(), DATEADD(MINUTE, -0, SYSUTCDATETIME()), 0, 0, 0, 'aaaaaaaa-0000-0000-0000-000000000001');
DECLARE @act bigint = SCOPE_IDENTITY();

EXEC rowpost.resume_act @act_id = @act, @executor = 'aaaaaaaa-0000-0000-0000-000000000002';

DECLARE @right int = (SELECT COUNT(*) FROM rowpost.act AS a WHERE a.executor = 'aaaaaaaa-0000-0000-0000-000000000001');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE acts_resume_act.[test resume_act forgets who had cancelled it]
AS
INSERT INTO rowpost.act (act_name, act_state, client, login_name, started_at, changed_at, done_count, gone_count, refused_count, executor)
VALUES (N'retry', N'cancelled', N'test', N'x', SYSUTCDATETIME(), DATEADD(MINUTE, -0, SYSUTCDATETIME()), 0, 0, 0, 'aaaaaaaa-0000-0000-0000-000000000001');
DECLARE @act bigint = SCOPE_IDENTITY();

UPDATE a
SET a.cancelled_by = N'x', a.ended_at = SYSUTCDATETIME()
FROM rowpost.act AS a
WHERE a.act_id = @act;
EXEC rowpost.resume_act @act_id = @act, @executor = 'aaaaaaaa-0000-0000-0000-000000000002';

DECLARE @right int = (SELECT COUNT(*) FROM rowpost.act AS a WHERE a.act_state = N'running' AND a.cancelled_by IS NULL AND a.ended_at IS NULL);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE acts_resume_act.[test resume_act leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.resume_act @act_id = 1, @executor = 'aaaaaaaa-0000-0000-0000-000000000001';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
