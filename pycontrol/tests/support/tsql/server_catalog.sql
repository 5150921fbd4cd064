-- What rowpost uses of SQL Server's own catalog, declared for the offline compiler, whose model has none: every column
-- and parameter below is documented by Microsoft under the same name. A query on anything else is reported; add here
-- what is new. The compiler reads sys.x as [sys~].x.
CREATE SCHEMA [sys~];
GO
CREATE TABLE [sys~].columns
(
    object_id int NOT NULL,
    name sysname NULL,
    column_id int NOT NULL,
    system_type_id tinyint NOT NULL,
    user_type_id int NOT NULL,
    max_length smallint NOT NULL,
    precision tinyint NOT NULL,
    scale tinyint NOT NULL,
    is_nullable bit NULL,
    is_identity bit NOT NULL,
    is_computed bit NULL,
    default_object_id int NOT NULL
);
GO
CREATE TABLE [sys~].databases
(
    name sysname NOT NULL,
    compatibility_level tinyint NOT NULL
);
GO
CREATE TABLE [sys~].database_permissions
(
    class tinyint NOT NULL,
    grantee_principal_id int NOT NULL,
    permission_name nvarchar(128) NULL,
    state char(1) NOT NULL
);
GO
CREATE TABLE [sys~].dm_exec_sessions
(
    session_id smallint NOT NULL,
    program_name nvarchar(128) NULL,
    database_id smallint NOT NULL,
    transaction_isolation_level smallint NOT NULL,
    open_transaction_count int NOT NULL
);
GO
CREATE TABLE [sys~].dm_exec_requests
(
    session_id smallint NOT NULL,
    sql_handle varbinary(64) NULL,
    wait_type nvarchar(60) NULL,
    wait_time int NOT NULL,
    wait_resource nvarchar(256) NOT NULL,
    blocking_session_id smallint NULL
);
GO
CREATE FUNCTION [sys~].dm_exec_sql_text (@handle varbinary(64))
RETURNS @text TABLE
(
    dbid smallint NULL,
    objectid int NULL
)
AS
BEGIN
    RETURN;
END;
GO
CREATE TABLE [sys~].dm_exec_procedure_stats
(
    database_id int NOT NULL,
    object_id int NOT NULL,
    cached_time datetime NULL,
    execution_count bigint NOT NULL,
    total_worker_time bigint NOT NULL,
    total_elapsed_time bigint NOT NULL,
    total_logical_reads bigint NOT NULL
);
GO
CREATE TABLE [sys~].server_event_sessions
(
    name sysname NOT NULL
);
GO
CREATE TABLE [sys~].dm_db_partition_stats
(
    object_id int NOT NULL,
    index_id int NOT NULL,
    in_row_used_page_count bigint NOT NULL,
    reserved_page_count bigint NOT NULL,
    row_count bigint NOT NULL
);
GO
CREATE FUNCTION [sys~].dm_db_index_operational_stats (@database_id smallint, @object_id int, @index_id int, @partition_number int)
RETURNS @stats TABLE
(
    index_id int NOT NULL,
    leaf_insert_count bigint NOT NULL,
    leaf_delete_count bigint NOT NULL,
    leaf_ghost_count bigint NOT NULL,
    object_id int NOT NULL,
    row_lock_wait_count bigint NOT NULL,
    page_lock_wait_count bigint NOT NULL,
    index_lock_promotion_count bigint NOT NULL,
    page_latch_wait_count bigint NOT NULL,
    page_latch_wait_in_ms bigint NOT NULL
)
AS
BEGIN
    RETURN;
END;
GO
CREATE TABLE [sys~].tables
(
    object_id int NOT NULL,
    create_date datetime NOT NULL,
    lock_escalation tinyint NULL
);
GO
CREATE TABLE [sys~].index_columns
(
    object_id int NOT NULL,
    index_id int NOT NULL,
    index_column_id int NOT NULL,
    column_id int NOT NULL,
    key_ordinal tinyint NOT NULL
);
GO
CREATE TABLE [sys~].indexes
(
    object_id int NOT NULL,
    name sysname NULL,
    index_id int NOT NULL,
    type_desc nvarchar(60) NULL,
    is_unique bit NULL,
    is_disabled bit NULL,
    is_primary_key bit NULL,
    is_unique_constraint bit NULL
);
GO
CREATE TABLE [sys~].objects
(
    name sysname NOT NULL,
    object_id int NOT NULL,
    schema_id int NOT NULL,
    type char(2) NULL
);
GO
CREATE TABLE [sys~].schemas
(
    name sysname NOT NULL,
    schema_id int NOT NULL,
    principal_id int NULL
);
GO
CREATE TABLE [sys~].triggers
(
    name sysname NOT NULL,
    parent_id int NOT NULL,
    is_disabled bit NOT NULL
);
GO
CREATE TABLE [sys~].partitions
(
    object_id int NOT NULL,
    index_id int NOT NULL,
    hobt_id bigint NOT NULL,
    rows bigint NULL
);
GO
CREATE TABLE [sys~].allocation_units
(
    type tinyint NOT NULL,
    container_id bigint NOT NULL,
    used_pages bigint NOT NULL
);
GO
CREATE TABLE [sys~].procedures
(
    name sysname NOT NULL,
    object_id int NOT NULL,
    schema_id int NOT NULL
);
GO
CREATE TABLE [sys~].sql_modules
(
    object_id int NOT NULL,
    definition nvarchar(max) NULL
);
GO
CREATE PROCEDURE [sys~].sp_getapplock
    @Resource nvarchar(255),
    @LockMode varchar(32),
    @LockOwner varchar(32) = 'Transaction',
    @LockTimeout int = NULL,
    @DbPrincipal sysname = N'dbo'
AS
RETURN 0;
GO
CREATE PROCEDURE [sys~].sp_releaseapplock
    @Resource nvarchar(255),
    @LockOwner varchar(32) = 'Transaction',
    @DbPrincipal sysname = N'dbo'
AS
RETURN 0;
GO
CREATE PROCEDURE [sys~].sp_set_session_context
    @key sysname,
    @value sql_variant,
    @read_only bit = 0
AS
RETURN 0;
GO
CREATE TABLE [sys~].dm_tran_locks
(
    resource_type nvarchar(60) NOT NULL,
    resource_database_id int NOT NULL,
    resource_associated_entity_id bigint NULL,
    request_mode nvarchar(60) NOT NULL,
    request_session_id int NOT NULL,
    request_owner_id bigint NULL
);
GO
CREATE TABLE [sys~].dm_tran_active_transactions
(
    transaction_id bigint NOT NULL,
    transaction_begin_time datetime NOT NULL
);
GO
CREATE TABLE [sys~].identity_columns
(
    object_id int NOT NULL,
    last_value sql_variant NULL
);
GO
