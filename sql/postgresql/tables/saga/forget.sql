-- Removes the saga's procedures and its registry entry. Its table and its instances stay.
{drop_saga_procedures}
SELECT rowpost.unregister_saga(p_saga_key => '{saga_key}');
