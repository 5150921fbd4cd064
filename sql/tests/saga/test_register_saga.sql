SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'saga_register_saga';
GO
CREATE OR ALTER PROCEDURE saga_register_saga.[SetUp]
AS
EXEC rowpost_tests.empty_tables;
GO
CREATE OR ALTER PROCEDURE saga_register_saga.[test register_saga enters a type]
AS
EXEC rowpost.register_saga
    @saga_key = N'New',
    @saga_name = N'New',
    @schema_name = N'dbo',
    @table_name = N'New',
    @correlation_name = N'OrderId',
    @correlation_type = 'integer';

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.saga AS s WHERE s.saga_key = N'New' AND s.correlation_type = 'integer');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE saga_register_saga.[test register_saga renews an entry]
AS
EXEC rowpost.register_saga
    @saga_key = N'New',
    @saga_name = N'New',
    @schema_name = N'dbo',
    @table_name = N'New',
    @correlation_name = N'OrderId',
    @correlation_type = 'integer';

EXEC rowpost.register_saga
    @saga_key = N'New',
    @saga_name = N'New',
    @schema_name = N'dbo',
    @table_name = N'New',
    @correlation_name = N'OrderId',
    @correlation_type = 'uuid',
    @transitional_name = N'Key',
    @transitional_type = 'string';

DECLARE @rows int = (SELECT COUNT(*) FROM rowpost.saga AS s WHERE s.saga_key = N'New' AND s.correlation_type = 'uuid' AND s.transitional_name = N'Key');
EXEC tSQLt.AssertEquals @Expected = 1, @Actual = @rows;
GO
CREATE OR ALTER PROCEDURE saga_register_saga.[test register_saga refuses the table of a queue]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51005;

EXEC rowpost.register_saga
    @saga_key = N'Sample',
    @saga_name = N'Sample',
    @schema_name = N'dbo',
    @table_name = N'Sample',
    @correlation_name = N'OrderId',
    @correlation_type = 'integer';
GO
CREATE OR ALTER PROCEDURE saga_register_saga.[test register_saga refuses a column of 129 characters]
AS
EXEC tSQLt.ExpectException @ExpectedErrorNumber = 51034;
DECLARE @long nvarchar(400) = REPLICATE(N'x', 129);

EXEC rowpost.register_saga
    @saga_key = N'New', @saga_name = N'New', @schema_name = N'dbo', @table_name = N'New', @correlation_name = @long, @correlation_type = 'string';
GO
CREATE OR ALTER PROCEDURE saga_register_saga.[test register_saga leaves the callers session as it was]
AS
DECLARE @options int = @@OPTIONS;
DECLARE @transactions int = @@TRANCOUNT;

EXEC rowpost.register_saga
    @saga_key = N'New',
    @saga_name = N'New',
    @schema_name = N'dbo',
    @table_name = N'New',
    @correlation_name = N'OrderId',
    @correlation_type = 'integer';

EXEC tSQLt.AssertEquals @Expected = @options, @Actual = @@OPTIONS;
EXEC tSQLt.AssertEquals @Expected = @transactions, @Actual = @@TRANCOUNT;
GO
