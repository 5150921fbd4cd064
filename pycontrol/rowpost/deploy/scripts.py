"""The .sql files: where they are, in which order they run, what each makes, and their hash.

    tables/NNN_what.sql                once, in the order of the numbers
    procedures/<feature>/<name>.sql    again when the text changes; deploy's first, helpers (_name) before the rest
    tables/queue/create.sql            per queue: makes the table, or completes one; again when text or entry change
    tables/queue/create_delayed.sql    per queue that has a delayed table
    tables/queue/create_trigger.sql    per queue of an environment with `wake_up: everybody` (PostgreSQL only)
    procedures/<feature>/<name>.sql    per queue where it holds {queue_key}: a template, one object per queue
    tables/saga/create.sql, procedures/saga/*.sql with {saga_key}    per type of saga, likewise
    tables/subscription/create.sql, procedures/*.sql with {subscription_key}    per table of subscriptions, likewise
    fragments/<name>.sql               no script: a line that is only {name} in a script is replaced by this text
    grants.sql, tables/queue/grants.sql, tables/saga/grants.sql      every time

PostgreSQL's twins have the same paths below sql/postgresql/.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from rowpost.database.contract import Contract, load_contract, read_contract
from rowpost.database.sql_folder import ONE_TIME, dialect_folder, schema_version, sql_folder
from rowpost.deploy.sql_text import SqlTextError, expand, render
from rowpost.errors import DeployError

__all__ = [
    "Script",
    "ScriptSet",
    "database_scripts",
    "hash_text",
    "load_scripts",
    "read_script",
    "render_script",
]

CREATE_TRIGGER = "tables/queue/create_trigger.sql"
OWN_TABLE = re.compile(r"\b(?:CREATE|ALTER)\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?rowpost\.(\w+)", re.IGNORECASE)


@dataclass(frozen=True)
class Script:
    """One file: its path below the dialect's folder, and its text with LF line ends."""

    name: str
    text: str

    @property
    def kind(self) -> str:
        """once, anytime or everytime."""
        if ONE_TIME.fullmatch(self.name):
            return "once"
        return "everytime" if self.name.endswith("grants.sql") else "anytime"

    @property
    def stem(self) -> str:
        """Name of the file alone, which is the name of the procedure in it."""
        return Path(self.name).stem

    @property
    def is_template(self) -> bool:
        """Whether it is rendered once per queue."""
        return "{queue_key}" in self.text

    @property
    def is_saga_template(self) -> bool:
        """Whether it is rendered once per type of saga."""
        return "{saga_key}" in self.text

    @property
    def is_subscription_template(self) -> bool:
        """Whether it is rendered once per table of subscriptions."""
        return "{subscription_key}" in self.text

    @property
    def table(self) -> str | None:
        """The product's own table that a one-time script makes or alters."""
        found = OWN_TABLE.search(self.text) if self.kind == "once" else None
        return found.group(1) if found else None


@dataclass(frozen=True)
class ScriptSet:
    """All scripts of one dialect, by what they are for. `create_trigger` is None on SQL Server, and in releases without it.

    `folder` is the sql folder that they came from, and `contract` its contract: an earlier release is rendered by its own.
    """

    engine: str
    folder: Path
    contract: Contract = field(repr=False)
    lock: Script
    begin: Script
    database: tuple[Script, ...]
    create: Script
    create_delayed: Script
    create_trigger: Script | None
    templates: tuple[Script, ...]
    saga_tables: tuple[Script, ...]
    saga_templates: tuple[Script, ...]
    saga_grants: tuple[Script, ...]
    saga_removal: tuple[Script, ...]
    subscription_tables: tuple[Script, ...]
    subscription_templates: tuple[Script, ...]
    grants: Script
    queue_grants: Script
    forget: Script
    drop: Script
    commit: Script
    unlock: Script

    @property
    def schema_version(self) -> int:
        """Number of the newest one-time script."""
        return schema_version(self.engine, self.folder)

    def adapted(self, adapt: Callable[[Script], Script]) -> ScriptSet:
        """Return the same scripts, each as `adapt` returns it."""
        changed: dict[str, Any] = {
            each.name: tuple(map(adapt, value)) if isinstance(value, tuple) else adapt(value)
            for each in fields(self)
            if each.name not in ("engine", "folder", "contract") and (value := getattr(self, each.name))
        }
        return replace(self, **changed)


def read_script(engine: str, name: str, folder: Path | None = None) -> Script:
    """Read one file of a dialect by its path. Raises DeployError."""
    path = dialect_folder(engine, folder) / name
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DeployError(f"{path}: cannot be read: {error}") from error
    return Script(name, expand(text.replace("\r\n", "\n").replace("\r", "\n"), _fragments(dialect_folder(engine, folder))))


def database_scripts(engine: str, folder: Path | None = None) -> tuple[Script, ...]:
    """Return what every database gets once: tables in number order, then procedures, deploy's first."""
    root = dialect_folder(engine, folder)
    tables = [name for name in _names(root, "tables/*.sql") if ONE_TIME.fullmatch(name)]
    _refuse_same_number(tables)
    ordered = [*sorted(tables, key=_number), *_procedure_names(root)]
    scripts = (read_script(engine, name, folder) for name in ordered)
    return tuple(script for script in scripts if not (script.is_template or script.is_saga_template or script.is_subscription_template))


def load_scripts(engine: str, folder: Path | None = None) -> ScriptSet:
    """Every script of a dialect, in order. Raises DeployError and ContractError."""
    root = dialect_folder(engine, folder)
    procedures = [read_script(engine, name, folder) for name in _procedure_names(root)]
    of_sagas = sorted(_names(root, "tables/saga/*.sql"))  # none in a release that knew no sagas

    def read(name: str) -> Script:
        return read_script(engine, name, folder)

    return ScriptSet(
        engine=engine,
        folder=folder or sql_folder(),
        contract=load_contract() if folder is None else read_contract(folder),
        lock=read("lock.sql"),
        begin=read("begin.sql"),
        database=database_scripts(engine, folder),
        create=read("tables/queue/create.sql"),
        create_delayed=read("tables/queue/create_delayed.sql"),
        create_trigger=read(CREATE_TRIGGER) if (root / CREATE_TRIGGER).is_file() else None,
        templates=tuple(script for script in procedures if script.is_template),
        saga_tables=tuple(read(name) for name in of_sagas if Path(name).stem.startswith("create")),
        saga_templates=tuple(script for script in procedures if script.is_saga_template),
        saga_grants=tuple(read(name) for name in of_sagas if name.endswith("grants.sql")),
        saga_removal=tuple(read(name) for name in of_sagas if Path(name).stem.startswith(("drop", "forget"))),
        subscription_tables=tuple(read(name) for name in _names(root, "tables/subscription/*.sql")),  # none in an earlier release
        subscription_templates=tuple(script for script in procedures if script.is_subscription_template),
        grants=read("grants.sql"),
        queue_grants=read("tables/queue/grants.sql"),
        forget=read("tables/queue/forget.sql"),
        drop=read("tables/queue/drop.sql"),
        commit=read("commit.sql"),
        unlock=read("unlock.sql"),
    )


def render_script(script: Script, names: dict[str, str], engine: str) -> str:
    """Return the script's text with its placeholders filled. Raises DeployError naming file and line."""
    try:
        return render(script.text, names, engine)
    except SqlTextError as error:
        raise DeployError(f"{script.name}: line {error.line}: {error.problem}") from error


def hash_text(text: str) -> str:
    """SHA-256 of a text in UTF-8, hexadecimal.

    >>> hash_text("SELECT 1;")[:12]
    '17db4fd369ed'
    """
    return hashlib.sha256(text.encode()).hexdigest()


def _fragments(root: Path) -> dict[str, str]:
    """Return SQL that several scripts share, by the placeholder that names it: fragments/<name>.sql."""
    paths = (root / name for name in _names(root, "fragments/*.sql"))
    return {path.stem: path.read_text(encoding="utf-8-sig").replace("\r\n", "\n") for path in paths}


def _names(root: Path, pattern: str) -> list[str]:
    return [path.relative_to(root).as_posix() for path in root.glob(pattern)]


def _procedure_names(root: Path) -> list[str]:
    return sorted(_names(root, "procedures/*/*.sql"), key=_procedure_order)


def _number(name: str) -> int:
    found = ONE_TIME.fullmatch(name)
    return int(found.group(1)) if found else 0


def _refuse_same_number(names: list[str]) -> None:
    seen: dict[int, str] = {}
    for name in sorted(names):
        other = seen.setdefault(_number(name), name)
        if other != name:
            raise DeployError(f"{name} and {other} have the same number: give the newer one the next free number")


def _procedure_order(name: str) -> tuple[bool, bool, str]:
    _, feature, file = name.split("/")
    return feature != "deploy", not file.startswith("_"), name
