SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'acts_cancel_act';
GO
CREATE OR ALTER PROCEDURE acts_cancel_act.[test cancel_act lets a running act go on until its next report]
AS
INSERT INTO rowpost.act (act_name, act_state, client, login_name, started_at, changed_at, done_count, gone_count, refused_count, executor)
VALUES (N'retry', N'running', N'test', N'x', SYSUTCDATETIME(), DATEADD(MINUTE, -0, SYSUTCDATETIME()), 0, 0, 0, 'aaaaaaaa-0000-0000-0000-000000000001');
DECLARE @act bigint = SCOPE_IDENTITY();

EXEC rowpost.cancel_act @act_id = @act, @user_name = N'ada';

DECLARE @right int = (SELECT COUNT(*) FROM rowpost.act AS a WHERE a.act_state = N'running' AND a.ended_at IS NULL AND a.cancelled_by LIKE N'ada (%');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE acts_cancel_act.[test cancel_act ends an act whose process is silent]
AS
INSERT INTO rowpost.act (act_name, act_state, client, login_name, started_at, changed_at, done_count, gone_count, refused_count, executor)
VALUES (N'retry', N'running', N'test', N'x', SYSUTCDATETIME(), DATEADD(MINUTE, -5, SYSUTCDATETIME()), 0, 0, 0, 'aaaaaaaa-0000-0000-0000-000000000001');
DECLARE @act bigint = SCOPE_IDENTITY();

EXEC rowpost.cancel_act @act_id = @act;

DECLARE @right int = (SELECT COUNT(*) FROM rowpost.act AS a WHERE a.act_state = N'cancelled' AND a.ended_at IS NOT NULL);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE acts_cancel_act.[test cancel_act changes no act that has ended]
AS
INSERT INTO rowpost.act (act_name, act_state, client, login_name, started_at, changed_at, done_count, gone_count, refused_count, executor)
VALUES (N'retry', N'done', N'test', N'x', SYSUTCDATETIME(), DATEADD(MINUTE, -0, SYSUTCDATETIME()), 0, 0, 0, 'aaaaaaaa-0000-0000-0000-000000000001');
DECLARE @act bigint = SCOPE_IDENTITY();

EXEC rowpost.cancel_act @act_id = @act;

DECLARE @right int = (SELECT COUNT(*) FROM rowpost.act AS a WHERE a.act_state = N'done' AND a.cancelled_by IS NULL);
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @right;
GO
CREATE OR ALTER PROCEDURE acts_cancel_act.[test cancel_act leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.cancel_act @act_id = 1;

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
