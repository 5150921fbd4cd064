-- What operators and readers may execute on this queue, rendered from the roles in contract.yml. The logins of endpoints
-- are granted one by one: rowpost queue grant.
{procedure_grants}
-- The right to see the table in the catalog, for check_queue and list_queues. The table of an external queue belongs to
-- another owner, who decides about it.
IF OBJECT_ID(N'rowpost.[receive_messages:{queue_key}]', N'P') IS NOT NULL
    EXEC (N'GRANT VIEW DEFINITION ON {queue_table} TO rowpost_endpoint, rowpost_operator, rowpost_reader, rowpost_body_reader;');
GO
-- For has_rows and maintain_queue, which run as this user.
IF OBJECT_ID(N'rowpost.[receive_messages:{queue_key}]', N'P') IS NOT NULL
    EXEC (N'GRANT SELECT ON {queue_table} TO rowpost_internal;');
IF OBJECT_ID(N'rowpost.[maintain_queue:{queue_key}]', N'P') IS NOT NULL
    EXEC (N'GRANT ALTER ON {queue_table} TO rowpost_internal;');
IF OBJECT_ID(N'rowpost.[delay_message:{queue_key}]', N'P') IS NOT NULL
    EXEC (N'GRANT SELECT ON {delayed_table} TO rowpost_internal;');
-- For return_lease and return_expired: to write row versions (IDENTITY_INSERT). SELECT is for has_rows.
IF OBJECT_ID(N'rowpost.[return_lease:{queue_key}]', N'P') IS NOT NULL
    EXEC (N'GRANT ALTER ON {queue_table} TO rowpost_internal;');
IF OBJECT_ID(N'rowpost.[return_lease:{queue_key}]', N'P') IS NOT NULL
    EXEC (N'GRANT SELECT ON {leased_table} TO rowpost_internal;');
GO
