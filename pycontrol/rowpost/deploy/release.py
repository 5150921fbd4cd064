"""A release's scripts in one file: to compare with later without a connection, and to go back to.

    write_release_archive(Path("rowpost-1.4.zip"))
    with open_release(Path("rowpost-1.4.zip")) as release:
        go_back(database, release)

An archive holds the templates, not what was rendered from them, so that queues made since are served too. Its own
contract renders them. Procedures and grants go back. Tables stay, for an earlier release's workers run on a later
schema, and so do procedures that only a later release has: its workers may still run. What a later release did to the
product's own tables is taken back by its scripts in tables/undo/, and by nothing else: they may lose what those tables
hold, so that a person has to ask for them. Then the later release's procedures are dropped too.

    go_back(database, release, undo=undo_scripts(database, release))
    way_back_script(plan(settings), plan(settings, release.folder), release.version)    the same, for a person to run
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from rowpost.database.connection import Connection
from rowpost.database.dialects.choice import dialect_for
from rowpost.database.sql_folder import sql_folder
from rowpost.deploy.apply import ApplyResult
from rowpost.deploy.by_hand import SCHEMA_IS, Section, refuse_unless, spell_calls, spell_script
from rowpost.deploy.contract_sql import drop_object
from rowpost.deploy.deployment import changing
from rowpost.deploy.diff import compare
from rowpost.deploy.features import deployed_features
from rowpost.deploy.parts import whole_part
from rowpost.deploy.plan import Plan, build_plan, script_header, sections_of
from rowpost.deploy.scripts import Script, ScriptSet, load_scripts, read_script
from rowpost.deploy.state import JournalEntry, ServerState, read_state
from rowpost.deploy.steps import ScriptStep
from rowpost.errors import DeployError
from rowpost.version import __version__

__all__ = ["Release", "go_back", "open_release", "undo_scripts", "way_back_script", "write_release_archive"]

VERSION = "VERSION"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same scripts make the same file


@dataclass(frozen=True)
class Release:
    """The scripts of a release: their folder, and the version that brought them ("" where nobody wrote it down)."""

    folder: Path
    version: str


def write_release_archive(path: Path, folder: Path | None = None) -> int:
    """Write what this release deploys, and its contract, into a zip file; return how many files. Raises OSError."""
    root = folder or sql_folder()
    scripts = (file for file in root.rglob("*.sql") if file.relative_to(root).parts[0] != "tests")
    files = sorted([*scripts, root / "contract.yml"])
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo(VERSION, _EPOCH), __version__ + "\n")
        for file in files:
            info = zipfile.ZipInfo(file.relative_to(root).as_posix(), _EPOCH)
            archive.writestr(info, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return len(files)


@contextmanager
def open_release(path: Path) -> Iterator[Release]:
    """Return the release in an archive, or in a folder such as sql/ of a checkout. Raises DeployError."""
    if path.is_dir():
        folder = path / "sql" if (path / "sql" / "contract.yml").is_file() else path
        _check_complete(path, folder)
        yield Release(folder, "")
        return
    with tempfile.TemporaryDirectory(prefix="rowpost-release-") as scratch:
        folder = Path(scratch)
        try:
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    _extract(archive, name, folder, path)
        except (OSError, zipfile.BadZipFile) as error:
            raise DeployError(
                f"{path} is not a release archive: {error}. To write one, run: rowpost plan --release-archive FILE"
            ) from error
        _check_complete(path, folder)
        version = folder / VERSION
        yield Release(folder, version.read_text(encoding="utf-8").strip() if version.is_file() else "")


def undo_scripts(database: Connection, release: Release, folder: Path | None = None) -> tuple[Script, ...]:
    """Return what takes back the one-time scripts that ran here and that a release does not bring, newest first.

    `folder` is the sql folder to look in instead of the product's own. Raises DeployError where a script is missing.
    """
    return _undo_scripts(read_state(database), load_scripts(database.engine, release.folder), folder)


def _undo_scripts(state: ServerState, scripts: ScriptSet, folder: Path | None) -> tuple[Script, ...]:
    theirs = {script.name for script in scripts.database}
    ran = [entry.script_name for entry in state.journal if entry.script_kind == "once"]
    later = sorted((name for name in ran if name not in theirs), reverse=True)
    try:
        return tuple(read_script(scripts.engine, f"tables/undo/{PurePosixPath(name).name}", folder) for name in later)
    except DeployError as error:
        raise DeployError(
            f"Nothing takes these scripts back: {', '.join(later)}. Their tables stay: {error}"
        ) from error


def go_back(
    database: Connection, release: Release, environment: str = "", undo: Sequence[Script] | None = None
) -> ApplyResult:
    """Run the procedures and grants of a release again, for every registered queue.

    If `undo` is given, also run these scripts for the tables, and drop the procedures that the release does not have.

    Raises:
        SchemaMissing: nothing is deployed here.
        DeployError: the release is newer than the database, or the server refused a batch. Nothing was changed.
    """
    scripts = load_scripts(database.engine, release.folder)
    with changing(database, environment, scripts) as (running, scripts):
        state = read_state(database)
        features = deployed_features(scripts, state)
        plan = _without_tables(build_plan(environment, scripts, state.registry, features=features), state)
        diff = compare(plan, replace(state, registry=()))
        running.run_part(whole_part(diff))
        for title, text in _after_steps(plan, state, release.version, undo):
            running.run_script(Script(title, text))
    applied = tuple(
        change.name for change in diff.to_run if isinstance(change.item, ScriptStep) and change.state != "everytime"
    )
    dropped = () if undo is None else tuple(entry.script_name for entry in _later_procedures(plan, state))
    return ApplyResult(applied, len(diff.names("unchanged")), dropped=dropped)


def way_back_script(now: Plan, earlier: Plan, release: str, *, tables: bool = False, folder: Path | None = None) -> str:
    """Return the script that goes back as `go_back` does, for the queues of a plan, and opens no connection.

    `now` is the plan that is deployed, and `earlier` that of the release to go back to, whose version is `release`, or
    an empty text. With `tables`, it also undoes what later releases did to the tables, and drops their procedures; it
    refuses a database with queues that the plan does not have, because they would keep later procedures. `folder` is
    as for `undo_scripts`. Raises DeployError where a script is missing, or where that release is newer.
    """
    journal = tuple(JournalEntry._make((*each.record.values(), None, None, None, "")) for each in now.steps)
    state = ServerState(journal, now.entries, now.schema_version, now.tool_version)
    plan = _without_tables(earlier, state)
    undo = _undo_scripts(state, earlier.scripts, folder) if tables else None
    about = (
        f"The way back to {f'rowpost {release}' if release else 'a saved release'}: its procedures and rights again.",
        f"{len(plan.queues)} queues of the environment; rowpost apply --to covers all that are registered.",
    )
    sections = (
        *_checks(now, tables),
        *sections_of(plan, plan.items, (), version=False),
        *_after_steps(plan, state, release, undo),
    )
    return script_header(now, about) + spell_script(plan.scripts, sections, now.database)


def _without_tables(plan: Plan, state: ServerState) -> Plan:
    """Return a release's plan with the procedures, triggers and grants only. Raises DeployError if it is newer."""
    if plan.scripts.schema_version > state.schema_version:
        raise DeployError(
            f"The release has schema {plan.scripts.schema_version} and the database {state.schema_version}: "
            "that is forward. Run rowpost apply with that release."
        )
    steps = (each for each in plan.steps if each.object_kind in ("procedure", "trigger") or each.kind == "everytime")
    return replace(plan, items=tuple(steps), whole=False)


def _after_steps(plan: Plan, state: ServerState, release: str, undo: Sequence[Script] | None) -> Iterator[Section]:
    """Return what runs after the release's steps: scripts for the tables, the version, and what is dropped."""
    scripts = plan.scripts
    for script in undo or ():
        yield script.name, script.text
        undone = {"script_name": script.name.replace("/undo/", "/")}
        yield f"{script.name} has run", spell_calls(scripts, "forget_script", [undone])
    schema = state.schema_version if undo is None else scripts.schema_version
    version = {"schema_version": schema, "tool_version": release or state.tool_version}
    yield "the version", spell_calls(scripts, "record_version", [version])
    dropped = () if undo is None else _later_procedures(plan, state)
    for entry in dropped:
        yield f"{entry.script_name} goes", spell_calls(scripts, "forget_script", [{"script_name": entry.script_name}])
    for entry in dropped:  # after the calls: a later release may call procedures that only it has
        yield entry.script_name, drop_object(plan.engine, str(entry.object_name), str(entry.object_kind))


def _checks(now: Plan, tables: bool) -> Iterator[Section]:
    said = f"The database does not have schema {now.schema_version}, from which this script goes back."
    yield "the schema", refuse_unless(now.engine, [SCHEMA_IS.format(now.schema_version)], said)
    if tables:
        keys = ", ".join(dialect_for(now.engine).literal(queue.key) for queue in now.queues) or "''"
        others = f"NOT EXISTS (SELECT 1 FROM rowpost.queue AS q WHERE q.queue_key NOT IN ({keys}))"  # noqa: S608
        said = "Queues are registered that the environment does not declare: run rowpost apply --to with --tables."
        yield "the queues", refuse_unless(now.engine, [others], said)


def _later_procedures(plan: Plan, state: ServerState) -> tuple[JournalEntry, ...]:
    """Return the journal's procedures and triggers that the plan does not have."""
    names = {step.script_name for step in plan.steps}
    return tuple(
        each for each in state.journal if each.object_kind in ("procedure", "trigger") and each.script_name not in names
    )


def _extract(archive: zipfile.ZipFile, name: str, folder: Path, path: Path) -> None:
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts:
        raise DeployError(f"{path}: holds {name!r}, which lies outside of it: do not use it.")
    archive.extract(name, folder)


def _check_complete(path: Path, folder: Path) -> None:
    if not (folder / "contract.yml").is_file() or not (folder / "begin.sql").is_file():
        raise DeployError(f"{path}: holds no release of rowpost: contract.yml and begin.sql are missing.")
