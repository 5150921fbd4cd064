-- What Babelfish lacks of T-SQL's functions. Run once in each cluster: psql --dbname=babelfish_db --file=server.sql
CREATE OR REPLACE FUNCTION sys.current_transaction_id() RETURNS bigint LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.txid_current()';
GRANT EXECUTE ON FUNCTION sys.current_transaction_id() TO PUBLIC;
