"""Spell the SQL that the contract determines, so that no script repeats the contract's list of procedures.

Each function returns a fragment for the placeholder of a script. The name of a template keeps its own placeholder,
`send_message:{queue_key}`, because rendering escapes it for the quotes that it stands in.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from rowpost.database.contract import CORE, Contract, Procedure

__all__ = [
    "REVOKE_ROLES", "contract_fragments", "drop_empty_table", "drop_object", "drop_procedures", "name_recoverable",
    "public_revokes", "role_grants", "template_rows",
]  # fmt: skip

#: what an INSERT into a queue's table holds as a comment, in a template
_IN_INSERT = re.compile(r" /\*(, \w+) \*/")
#: takes the rights of the cluster's roles in a database away, on PostgreSQL. The roles stay, because other databases of
#: the server may use them.
REVOKE_ROLES = """\
DO $rowpost$
DECLARE
    v_role text;
    v_place text;
BEGIN
    FOREACH v_role IN ARRAY ARRAY['rowpost_endpoint', 'rowpost_operator', 'rowpost_reader', 'rowpost_body_reader'] LOOP
        CONTINUE WHEN to_regrole(v_role) IS NULL;
        FOR v_place IN
            SELECT 'SCHEMA rowpost'
            UNION ALL
            SELECT 'ALL FUNCTIONS IN SCHEMA rowpost'
            UNION ALL
            SELECT format('TABLE %I.%I', q.schema_name, q.table_name)
            FROM rowpost.queue AS q
            WHERE q.kind <> 'external' AND to_regclass(format('%I.%I', q.schema_name, q.table_name)) IS NOT NULL
            UNION ALL
            SELECT format('SCHEMA %I', n.nspname)
            FROM pg_catalog.pg_namespace AS n
            WHERE EXISTS (SELECT FROM pg_catalog.aclexplode(n.nspacl) AS a WHERE a.grantee = to_regrole(v_role))
              AND (EXISTS (SELECT FROM rowpost.queue AS q WHERE q.schema_name = n.nspname AND q.kind <> 'external')
                OR EXISTS (
                    SELECT FROM rowpost.journal AS j
                    WHERE CASE j.object_kind WHEN 'schema' THEN to_regnamespace(j.object_name) END = n.oid
                ))
        LOOP
            EXECUTE format('REVOKE ALL ON %s FROM %I', v_place, v_role);
        END LOOP;
    END LOOP;
END
$rowpost$;
"""
_CREATE = re.compile(r"^CREATE( OR ALTER)? PROCEDURE", re.MULTILINE)


def contract_fragments(contract: Contract, engine: str, features: Collection[str] | None = None) -> dict[str, str]:
    """Return the SQL that a contract determines, by placeholder; only of these features, or of all if None."""
    granted = [
        each
        for each in contract.procedures
        if each.scope == "database" and (features is None or each.feature in {CORE, *features})
    ]
    return {
        "procedure_grants": role_grants(engine, granted),
        "queue_procedures": template_rows(contract.templates(features=features)),
        "drop_queue_procedures": drop_procedures(engine, contract.templates()),
        "drop_saga_procedures": drop_procedures(engine, contract.saga_templates()),
    }


def role_grants(engine: str, procedures: Iterable[Procedure]) -> str:
    """Spell which roles may execute these procedures."""
    names: dict[tuple[str, ...], list[str]] = {}
    for procedure in procedures:
        names.setdefault(procedure.roles, []).append(_name(engine, procedure))
    granted = [(", ".join(f"rowpost_{role}" for role in roles), each) for roles, each in names.items() if roles]
    if engine == "sqlserver":
        return "\n".join(f"GRANT EXECUTE ON {name} TO {roles};" for roles, each in granted for name in each)
    return "\n".join(f"GRANT EXECUTE ON FUNCTION\n{_listed(each)}\nTO {roles};" for roles, each in granted)


def public_revokes(procedures: Iterable[Procedure]) -> str:
    """Spell that PUBLIC may not execute these templates, for PostgreSQL, where it may execute a new function.

    A queue is also deployed alone, without grants.sql, which revokes the others.
    """
    names = [_name("postgresql", each) for each in procedures]
    return f"REVOKE ALL ON FUNCTION\n{_listed(names)}\nFROM PUBLIC;" if names else ""


def drop_procedures(engine: str, procedures: Iterable[Procedure]) -> str:
    """Spell the removal of these procedures; one that does not exist is skipped."""
    kind = "PROCEDURE" if engine == "sqlserver" else "FUNCTION"
    return "\n".join(f"DROP {kind} IF EXISTS {_name(engine, each)};" for each in procedures)


def drop_object(engine: str, name: str, kind: str = "procedure") -> str:
    """Spell the removal of a procedure, function or publication by its quoted name; it is skipped if it does not exist.

    If `kind` is trigger, the triggers on tables that call the function go too.
    """
    if kind == "publication":
        return f"DROP PUBLICATION IF EXISTS {name};"
    if engine == "postgresql":
        return f"DROP FUNCTION IF EXISTS {name}{' CASCADE' if kind == 'trigger' else ''};"
    text = name.replace("'", "''")
    return (
        f"IF OBJECTPROPERTY(OBJECT_ID(N'{text}'), N'IsProcedure') = 1\n    DROP PROCEDURE {name};\nELSE\n    DROP "
        f"FUNCTION IF EXISTS {name};"
    )


def drop_empty_table(engine: str, name: str) -> str:
    """Spell the removal of a table by its quoted name; it is an error if the table has rows.

    Waits for transactions that use it.
    """
    text = name.replace("'", "''")
    said = f"The table {text} has rows by now and is not dropped: run rowpost plan again."
    if engine == "postgresql":
        return (
            f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE;\n"
            f"DO $rowpost$\nBEGIN\n    IF EXISTS (SELECT FROM {name}) THEN\n"
            f"        RAISE EXCEPTION USING MESSAGE = '{said}';\n    END IF;\nEND\n$rowpost$;\nDROP TABLE {name};\n"
        )
    lock, said = "WITH (TABLOCKX, HOLDLOCK)", said.replace("%", "%%")  # THROW reads % as the start of a placeholder
    return f"IF EXISTS (SELECT 1 FROM {name} {lock})\n    THROW 50000, N'{said}', 1;\nDROP TABLE {name};\n"  # noqa: S608 -- quoted


def name_recoverable(batch: str, table: str, elsewhere: bool) -> str:
    """Spell the batch that makes a procedure again, with what stands in the comments of its INSERT, if the table has
    the column Recoverable without a default.

    Args:
        table: its quoted name.
        elsewhere: it lies in another database, whose defaults are not read.
    """
    again = _IN_INSERT.sub(r"\1", _CREATE.sub("ALTER PROCEDURE", batch, count=1))
    table, again = (text.replace("'", "''") for text in (table, again))
    column = f"c.object_id = OBJECT_ID(N'{table}', N'U') AND c.name = N'Recoverable'"
    found = f"EXISTS (SELECT 1 FROM sys.columns AS c WHERE {column} AND c.default_object_id = 0)"  # noqa: S608 -- quoted
    if elsewhere:
        found = f"COL_LENGTH(N'{table}', N'Recoverable') = 1"
    return f"IF {found}\n    EXEC (N'{again}');\nGO\n"


def template_rows(procedures: Iterable[Procedure]) -> str:
    """Spell the rows of a VALUES list: each template's name, and which queues have it (all, own, delayed or lease)."""
    return ",\n".join(f"('{each.name}', '{each.queues}')" for each in procedures)


def _listed(names: list[str]) -> str:
    return ",\n".join(f"    {name}" for name in names)


def _name(engine: str, procedure: Procedure) -> str:
    if procedure.scope == "database":
        return f"rowpost.{procedure.name}"
    name = f"{procedure.name}:{{{procedure.scope}_key}}"
    return f"rowpost.[{name}]" if engine == "sqlserver" else f'rowpost."{name}"'
