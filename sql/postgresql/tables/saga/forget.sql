-- Takes the saga's procedures and its registry entry away; its table and its instances stay.
DROP FUNCTION IF EXISTS rowpost."load_saga:{saga_key}";
DROP FUNCTION IF EXISTS rowpost."insert_saga:{saga_key}";
DROP FUNCTION IF EXISTS rowpost."update_saga:{saga_key}";
DROP FUNCTION IF EXISTS rowpost."complete_saga:{saga_key}";
DROP FUNCTION IF EXISTS rowpost."correlate_saga:{saga_key}";
DROP FUNCTION IF EXISTS rowpost."correlate_sagas:{saga_key}";
DROP FUNCTION IF EXISTS rowpost."list_sagas:{saga_key}";
SELECT rowpost.unregister_saga(p_saga_key => '{saga_key}');
