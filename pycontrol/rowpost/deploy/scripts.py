"""The .sql files: where they are, in which order they run, what each makes, and their hash.

    tables/NNN_what.sql                once, in the order of the numbers
    procedures/<feature>/<name>.sql    again when the text changes; deploy's first, helpers (_name) before the rest
    tables/queue/create.sql            per queue: makes the table, unless it is there; again when text or entry change
    tables/queue/create_delayed.sql    per queue that has a delayed table
    tables/queue/create_trigger.sql    per queue of an environment with `wake_up: everybody` (PostgreSQL only)
    procedures/<feature>/<name>.sql    per queue where it holds {queue_key}: a template, one object per queue
    tables/saga/create.sql, procedures/saga/*.sql with {saga_key}    per type of saga, likewise
    tables/subscription/create.sql, procedures/*.sql with {subscription_key}    per table of subscriptions, likewise
    fragments/<name>.sql               no script: a line that is only {name} in a script is replaced by this text
    tables/schema/create.sql           per schema of queues, sagas or subscriptions; not dbo
    grants.sql, tables/queue/grants.sql, tables/saga/grants.sql      every time
    tables/roles.sql, tables/queue/roles.sql, tables/saga/roles.sql  every time with `roles: cluster` (PostgreSQL only)

PostgreSQL's twins have the same paths below sql/postgresql/.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path

from rowpost.database.contract import Contract, load_contract, read_contract
from rowpost.database.sql_folder import ONE_TIME, dialect_folder
from rowpost.deploy.sql_text import expand
from rowpost.errors import DeployError

__all__ = [
    "ROLES_SCRIPT",
    "Script",
    "ScriptSet",
    "Templates",
    "hash_text",
    "load_scripts",
    "read_script",
]

#: what a template of each kind of the registry's entries holds
_PLACEHOLDERS = {"queue": "{queue_key}", "saga": "{saga_key}", "subscription": "{subscription_key}"}
#: makes the roles of the cluster, on PostgreSQL
ROLES_SCRIPT = "tables/roles.sql"
OWN_TABLE = re.compile(r"\b(?:CREATE|ALTER)\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?rowpost\.(\w+)", re.IGNORECASE)


@dataclass(frozen=True)
class Script:
    """One file: its path below the dialect's folder, and its text with LF line ends."""

    name: str
    text: str

    @cached_property
    def kind(self) -> str:
        """once, anytime or everytime."""
        if ONE_TIME.fullmatch(self.name):
            return "once"
        return "everytime" if self.stem in ("grants", "roles") else "anytime"

    @cached_property
    def stem(self) -> str:
        """Name of the file alone, which is the name of the procedure in it."""
        return self.name.rpartition("/")[2].removesuffix(".sql")

    @property
    def table(self) -> str | None:
        """The product's own table that a one-time script makes or alters."""
        found = OWN_TABLE.search(self.text) if self.kind == "once" else None
        return found.group(1) if found else None


@dataclass(frozen=True)
class Templates:
    """The scripts of one kind of the registry's entries, in order.

    Attributes:
        tables: they make tables and triggers. The trigger is missing on SQL Server, and all are in releases that know
            no such entry.
        procedures: each makes one procedure.
        grants: they run every time.
        removal: they take the entry and what belongs to it away.
    """

    tables: tuple[Script, ...]
    procedures: tuple[Script, ...]
    grants: tuple[Script, ...]
    removal: tuple[Script, ...]

    def find_removal(self, stem: str) -> Script:
        """Return the removing script of this name. Raises DeployError if this release does not have it."""
        found = next((each for each in self.removal if each.stem == stem), None)
        if found is None:
            raise DeployError(
                f"This release has no script {stem}.sql, which would remove it. Install rowpost again, or use a newer "
                "release."
            )
        return found


@dataclass(frozen=True)
class ScriptSet:
    """All scripts of one dialect, by what they are for. A release may have no script of schemas or of roles.

    `contract` is the release's own: an earlier release is rendered by that. `schema_version` is the number of the
    newest one-time script.
    """

    engine: str
    contract: Contract = field(repr=False)
    lock: Script
    begin: Script
    database: tuple[Script, ...]
    grants: Script
    roles: Script | None
    schema: Script | None
    queue: Templates
    saga: Templates
    subscription: Templates
    commit: Script
    unlock: Script
    schema_version: int


def read_script(engine: str, name: str, folder: Path | None = None) -> Script:
    """Read one file of a dialect by its path. Raises DeployError."""
    root = dialect_folder(engine, folder)
    return _read(root, _fragments(root), name)


def _read(root: Path, fragments: dict[str, str], name: str) -> Script:
    path = root / name
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DeployError(f"{path}: cannot be read: {error}") from error
    return Script(name, expand(text.replace("\r\n", "\n").replace("\r", "\n"), fragments))


def load_scripts(engine: str, folder: Path | None = None) -> ScriptSet:
    """Return every script of a dialect, in order. rowpost's own are read once in a process.

    Raises DeployError and ContractError.
    """
    return _own_scripts(engine) if folder is None else _load(engine, folder)


@cache
def _own_scripts(engine: str) -> ScriptSet:
    return _load(engine, None)


def _load(engine: str, folder: Path | None) -> ScriptSet:
    root = dialect_folder(engine, folder)
    read = partial(_read, root, _fragments(root))
    tables = [name for name in _names(root, "tables/*.sql") if ONE_TIME.fullmatch(name)]
    _check_numbers(tables)
    procedures = [read(name) for name in sorted(_names(root, "procedures/*/*.sql"), key=_procedure_order)]

    def templates(kind: str, *required: str) -> Templates:
        folder = f"tables/{kind}"
        found = [
            read(name)
            for name in sorted({*_names(root, f"{folder}/*.sql"), *(f"{folder}/{each}.sql" for each in required)})
        ]
        return Templates(
            tables=tuple(each for each in found if each.stem.startswith("create")),
            procedures=tuple(each for each in procedures if _PLACEHOLDERS[kind] in each.text),
            grants=tuple(each for each in found if each.kind == "everytime"),
            removal=tuple(each for each in found if each.stem.startswith(("drop", "forget"))),
        )

    def optional(name: str) -> Script | None:
        return read(name) if (root / name).is_file() else None

    return ScriptSet(
        engine=engine,
        contract=load_contract() if folder is None else read_contract(folder),
        lock=read("lock.sql"),
        begin=read("begin.sql"),
        database=(
            *map(read, sorted(tables, key=_number)),
            *(
                each
                for each in procedures
                if not any(placeholder in each.text for placeholder in _PLACEHOLDERS.values())
            ),
        ),
        grants=read("grants.sql"),
        roles=optional(ROLES_SCRIPT),
        schema=optional("tables/schema/create.sql"),
        queue=templates("queue", "create", "create_delayed", "forget", "drop", "grants"),
        saga=templates("saga"),  # a release that knows no sagas has none
        subscription=templates("subscription"),
        commit=read("commit.sql"),
        unlock=read("unlock.sql"),
        schema_version=max(map(_number, tables), default=0),
    )


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


def _number(name: str) -> int:
    found = ONE_TIME.fullmatch(name)
    return int(found.group(1)) if found else 0


def _check_numbers(names: list[str]) -> None:
    seen: dict[int, str] = {}
    for name in sorted(names):
        other = seen.setdefault(_number(name), name)
        if other != name:
            raise DeployError(f"{name} and {other} have the same number: give the newer one the next free number")


def _procedure_order(name: str) -> tuple[bool, bool, str]:
    _, feature, file = name.split("/")
    return feature != "deploy", not file.startswith("_"), name
