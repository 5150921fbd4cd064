"""What a deployment asks a database before it changes anything: what stands there under some names, one text for each
engine, and whether roles have rights.
"""

from __future__ import annotations

__all__ = ["HAS_ROLES", "RELATIONS", "SCHEMAS"]

#: one row a column of each relation that is there: name as asked, what it is (empty for a table that can hold rows of a
#: queue, a saga or subscriptions), column, the column's type without a length, whether each insert must fill it
RELATIONS = {
    "postgresql": """
SELECT w.name,
    CASE WHEN c.relispartition THEN 'partition of another table' ELSE CASE c.relkind WHEN 'r' THEN '' WHEN 'p' THEN 'partitioned table'
        WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'f' THEN 'foreign table' WHEN 'S' THEN 'sequence' WHEN 'c' THEN 'type'
        ELSE 'index' END END,
    a.attname::text,
    format_type(coalesce(nullif(t.typbasetype, 0), a.atttypid), NULL), -- a domain is stored as its type
    a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attgenerated = ''
FROM pg_catalog.json_array_elements_text({names}::json) AS w (name)
JOIN pg_catalog.pg_class AS c ON c.oid = to_regclass(w.name)
LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
ORDER BY c.oid, a.attnum
""",  # noqa: E501
    "sqlserver": """
SELECT w.value,
    CASE WHEN t.is_external = 1 THEN 'external table' WHEN t.is_memory_optimized = 1 THEN 'memory-optimized table'
        WHEN o.type = 'U' THEN '' ELSE LOWER(REPLACE(o.type_desc, '_', ' ')) END,
    c.name,
    ISNULL(TYPE_NAME(c.system_type_id), TYPE_NAME(c.user_type_id)), -- an alias is stored as its type; the types of .NET share one number
    CASE WHEN c.is_nullable = 0 AND c.is_identity = 0 AND c.is_computed = 0 AND c.default_object_id = 0 AND c.system_type_id <> 189 -- rowversion
        THEN 1 ELSE 0 END
FROM OPENJSON({names}) AS w
INNER JOIN sys.objects AS o ON o.object_id = OBJECT_ID(w.value)
LEFT JOIN sys.tables AS t ON t.object_id = o.object_id
LEFT JOIN sys.columns AS c ON c.object_id = o.object_id
ORDER BY o.object_id, c.column_id;
""",  # noqa: E501
}

#: on PostgreSQL: whether the roles of the cluster have rights in the database
HAS_ROLES = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_namespace AS n
    CROSS JOIN LATERAL pg_catalog.aclexplode(n.nspacl) AS a
    WHERE n.nspname = 'rowpost' AND a.grantee = pg_catalog.to_regrole('rowpost_operator')
)
"""

#: the schemas that the login can see
SCHEMAS = {
    "postgresql": "SELECT n.nspname::text FROM pg_catalog.pg_namespace AS n",
    "sqlserver": "SELECT s.name FROM sys.schemas AS s;",
}
