-- The registry: the queues that have procedures, and their tables.
IF OBJECT_ID(N'rowpost.queue', N'U') IS NULL
    CREATE TABLE rowpost.queue
    (
        queue_key nvarchar(128) NOT NULL,
        queue_name nvarchar(400) NOT NULL,
        catalog_name sysname NULL,
        schema_name sysname NOT NULL,
        table_name sysname NOT NULL,
        -- the spelling of its address in tables of subscriptions, beside its name; only that of a queue elsewhere names a database
        address nvarchar(650) NOT NULL,
        kind varchar(10) NOT NULL,
        body_string bit NOT NULL,
        [clustered] bit NOT NULL,
        delayed bit NOT NULL,
        lease bit NOT NULL,
        CONSTRAINT queue_pk PRIMARY KEY CLUSTERED (queue_key),
        CONSTRAINT queue_name_key UNIQUE (queue_name),
        CONSTRAINT queue_address_key UNIQUE (address),
        CONSTRAINT queue_kind_check CHECK (kind IN ('own', 'adopted', 'external'))
    );
GO
