SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.list_scripts
AS
/*
Reads the journal, with the current fingerprint of each object.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by script.
*/
SET NOCOUNT, XACT_ABORT ON;

SELECT
    j.script_name,
    j.script_kind,
    j.script_hash,
    j.object_kind,
    j.object_name,
    j.object_fingerprint AS recorded_fingerprint,
    rowpost."_object_fingerprint"(j.object_kind, j.object_name) AS living_fingerprint,
    j.applied_at,
    j.applied_by
FROM rowpost.journal AS j
ORDER BY j.script_name;
GO
