-- One row per script that ran: the hash of its text, and the fingerprint of the object that it made.
CREATE TABLE IF NOT EXISTS rowpost.journal
(
    script_name text NOT NULL,
    script_kind text NOT NULL,
    script_hash text NOT NULL,
    object_kind text NULL,
    object_name text NULL,
    object_fingerprint text NULL,
    applied_at timestamp(3) NOT NULL,
    applied_by text NOT NULL,
    CONSTRAINT journal_key PRIMARY KEY (script_name)
);
