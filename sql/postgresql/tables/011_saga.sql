-- The types of sagas that have procedures, with the table of their instances and the correlation property.
CREATE TABLE IF NOT EXISTS rowpost.saga
(
    saga_key text NOT NULL,
    saga_name text NOT NULL,
    schema_name text NOT NULL,
    table_name text NOT NULL,
    correlation_name text NOT NULL,
    correlation_type text NOT NULL,
    transitional_name text NULL,
    transitional_type text NULL,
    CONSTRAINT saga_pk PRIMARY KEY (saga_key),
    CONSTRAINT saga_name_key UNIQUE (saga_name)
);
