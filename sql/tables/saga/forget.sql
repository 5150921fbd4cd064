-- Takes the saga's procedures and its registry entry away; its table and its instances stay.
DROP PROCEDURE IF EXISTS rowpost.[load_saga:{saga_key}];
DROP PROCEDURE IF EXISTS rowpost.[insert_saga:{saga_key}];
DROP PROCEDURE IF EXISTS rowpost.[update_saga:{saga_key}];
DROP PROCEDURE IF EXISTS rowpost.[complete_saga:{saga_key}];
DROP PROCEDURE IF EXISTS rowpost.[correlate_saga:{saga_key}];
DROP PROCEDURE IF EXISTS rowpost.[correlate_sagas:{saga_key}];
DROP PROCEDURE IF EXISTS rowpost.[list_sagas:{saga_key}];
GO
EXEC rowpost.unregister_saga @saga_key = N'{saga_key}';
GO
