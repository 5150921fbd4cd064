-- Removes the saga's procedures and its registry entry. Its table and its instances stay.
{drop_saga_procedures}
GO
EXEC rowpost.unregister_saga @saga_key = N'{saga_key}';
GO
