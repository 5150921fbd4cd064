"""Spell a script that a person runs with sqlcmd or psql: one transaction, its checks, its guards and its limits.

`spell_script` puts sections between the script's begin and its end. A section is a title and its text. Each batch of
T-SQL is followed by a guard, because a tool may go on after an error. On PostgreSQL, the failed transaction refuses the
rest. What a script checks stands where nothing has changed yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count

from rowpost.database.dialects.choice import dialect_for
from rowpost.deploy.runner import SESSION_BATCH
from rowpost.deploy.scripts import ScriptSet
from rowpost.deploy.sql_text import code_only, split_batches

__all__ = [
    "BATCH_GUARD", "HOW_TO_RUN", "SCHEMA_IS", "Section", "heading", "progress_text", "refuse_unless", "spell_calls",
    "spell_script",
]  # fmt: skip

#: a title, and the text below it
Section = tuple[str, str]

HOW_TO_RUN = {
    "sqlserver": "sqlcmd -S <server> -d <database> -b -x -f 65001 -i <this file>",
    "postgresql": "PGCLIENTENCODING=UTF8 psql -v ON_ERROR_STOP=1 -f <this file> <database>",
}
#: Stands behind each batch. An error of execution has rolled the transaction back, so that the rest would run outside
#: of it. An error of compilation leaves the transaction open, and the rest would commit without the batch.
BATCH_GUARD = "IF @@ERROR <> 0 OR @@TRANCOUNT = 0 SET NOEXEC ON; -- after an error: skip the rest\nGO\n"
_BEFORE_BEGIN = """\
IF DB_ID() <= 4
    THROW 50000, N'This is a system database: run the script in the database of the queues, with sqlcmd -d.', 1;
IF SERVERPROPERTY(N'babelfish') IS NULL
   AND (SELECT d.compatibility_level FROM sys.databases AS d WHERE d.database_id = DB_ID()) < 130
    THROW 50000, N'The database has a compatibility level below 130: ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = 130;', 1;
{check}RAISERROR (N'rowpost: if another deployment runs, this one waits until it ends.', 0, 1) WITH NOWAIT;
GO
IF @@ERROR <> 0 SET NOEXEC ON; -- after an error: skip the rest
GO
"""  # noqa: E501 -- as it is printed
#: a lock that is not granted ends the script after 30 s: a waiting ALTER TABLE lets all senders wait behind it
_LIMIT_WAITS = {
    "sqlserver": "SET LOCK_TIMEOUT 30000;\n",
    "postgresql": "    PERFORM set_config('lock_timeout', '30s', true) WHERE current_setting('lock_timeout') = '0';\n",
}
_AFTER_COMMIT = "SET NOEXEC OFF;\nGO\nIF @@TRANCOUNT > 0 ROLLBACK TRANSACTION; -- after an error: nothing remains\nGO\n"
#: a condition for `refuse_unless`: the schema of the database
SCHEMA_IS = "(SELECT COALESCE(MAX(v.schema_version), 0) FROM rowpost.version AS v) = {}"
_OTHER_DATABASE = "This script was made for the database {}. Run it there, or print it again with the url of this one."


def spell_script(scripts: ScriptSet, sections: Iterable[Section], database: str = "") -> str:
    """Return a script of these sections, which refuses every database but `database`, if that is not empty."""
    engine, name = scripts.engine, dialect_for(scripts.engine).literal(database)
    is_other = {"sqlserver": "LOWER(DB_NAME()) <> LOWER({})", "postgresql": "current_database() <> {}"}[engine]
    check = _refuse(engine, is_other.format(name), _OTHER_DATABASE.format(database)) if database else ""
    begin, commit = ((each.name, each.text) for each in (scripts.begin, scripts.commit))
    is_tsql, limits = engine == "sqlserver", _LIMIT_WAITS[engine]
    head, end = (_BEFORE_BEGIN.format(check=check), _AFTER_COMMIT) if is_tsql else ("", "")
    limited = ("the limit for waits, and what the script checks", limits if is_tsql else _block(limits + check))
    body = "".join(_section(engine, each) for each in (begin, limited, *sections))
    return f"{head}{body}{_section(engine, commit, guard='')}{end}"


def refuse_unless(engine: str, conditions: Iterable[str], said: str) -> str:
    """Spell statements that end the script with a sentence unless each condition holds, tested in this order."""
    checks = "".join(_refuse(engine, f"NOT ({each})", said) for each in conditions)
    return checks if engine == "sqlserver" else _block(checks)


def _refuse(engine: str, condition: str, said: str) -> str:
    literal = dialect_for(engine).literal
    if engine == "postgresql":
        return f"    IF {condition} THEN\n        RAISE EXCEPTION USING MESSAGE = {literal(said)};\n    END IF;\n"
    return f"IF {condition}\n    THROW 50000, {literal(said.replace('%', '%%'))}, 1;\n"  # THROW reads %


def progress_text(engine: str, title: str) -> str:
    """Spell a statement that shows, at once, what runs next."""
    shown = dialect_for(engine).literal(title)
    if engine == "postgresql":
        return _block(f"    RAISE NOTICE 'rowpost: %', {shown};\n")
    return f"RAISERROR (N'rowpost: %s', 0, 1, {shown}) WITH NOWAIT;\n"


def spell_calls(scripts: ScriptSet, procedure: str, calls: Iterable[Mapping[str, object]]) -> str:
    """Spell calls of a procedure of the database, a line each, by their arguments."""
    found, dialect = scripts.contract.find(procedure, "database"), dialect_for(scripts.engine)
    return "".join(f"{dialect.script_call(found, tuple(arguments.items()))}\n" for arguments in calls)


def heading(title: str) -> str:
    """Return the lines above a section of a script."""
    rule = "-- " + "=" * 100
    return f"\n{rule}\n-- {title}\n{rule}\n"


def _block(statements: str) -> str:
    tag = next(tag for number in count() if (tag := f"$rowpost_{number}$") not in statements)
    return f"DO {tag}\nBEGIN\n{statements}END\n{tag};\n"


def _section(engine: str, section: Section, guard: str = BATCH_GUARD) -> str:
    title, text = section
    if engine == "postgresql":
        return f"{heading(title)}{text.rstrip()}\n"
    batches = (batch.text.strip("\n") for batch in split_batches(text, engine))
    # a batch that only changes settings cannot fail
    guarded = (f"{each}\nGO\n{'' if SESSION_BATCH.fullmatch(code_only(each)) else guard}" for each in batches)
    return heading(title) + "".join(guarded)
