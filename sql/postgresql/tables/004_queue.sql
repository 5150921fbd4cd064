-- The registry: the queues that have procedures, and their tables.
CREATE TABLE IF NOT EXISTS rowpost.queue
(
    queue_key text NOT NULL,
    queue_name text NOT NULL,
    catalog_name text NULL,
    schema_name text NOT NULL,
    table_name text NOT NULL,
    kind text NOT NULL,
    body_string boolean NOT NULL,
    clustered boolean NOT NULL,
    delayed boolean NOT NULL,
    lease boolean NOT NULL,
    -- the spellings of its address in tables of subscriptions, beside its name
    bracketed_address text NOT NULL GENERATED ALWAYS AS (table_name || '@[' || replace(schema_name, ']', ']]') || ']') STORED,
    quoted_address text NOT NULL GENERATED ALWAYS AS ('"' || replace(schema_name, '"', '""') || '"."' || replace(table_name, '"', '""') || '"') STORED,
    CONSTRAINT queue_pk PRIMARY KEY (queue_key),
    CONSTRAINT queue_name_key UNIQUE (queue_name),
    CONSTRAINT queue_bracketed_key UNIQUE (bracketed_address),
    CONSTRAINT queue_quoted_key UNIQUE (quoted_address),
    CONSTRAINT queue_kind_check CHECK (kind IN ('own', 'adopted', 'external'))
);

-- For the optional column bodystring: the body as text, or escaped if it is not UTF-8.
CREATE OR REPLACE FUNCTION rowpost._readable_body(p_body bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $rowpost$
BEGIN
    RETURN convert_from(p_body, 'UTF8');
EXCEPTION
    WHEN character_not_in_repertoire OR untranslatable_character THEN
        RETURN encode(p_body, 'escape');
END
$rowpost$;
