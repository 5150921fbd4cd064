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
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from rowpost.database.connection import Connection
from rowpost.database.sql_folder import sql_folder
from rowpost.deploy.apply import ApplyResult
from rowpost.deploy.contract_sql import drop_object
from rowpost.deploy.deployment import changing
from rowpost.deploy.diff import compare
from rowpost.deploy.features import deployed_features
from rowpost.deploy.parts import whole_part
from rowpost.deploy.plan import Plan, build_plan
from rowpost.deploy.scripts import Script, load_scripts, read_script
from rowpost.deploy.state import JournalEntry, ServerState, read_state
from rowpost.deploy.steps import ScriptStep
from rowpost.errors import DeployError
from rowpost.version import __version__

__all__ = ["Release", "go_back", "open_release", "undo_scripts", "write_release_archive"]

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
    theirs = {script.name for script in load_scripts(database.engine, release.folder).database}
    ran = [entry.script_name for entry in read_state(database).journal if entry.script_kind == "once"]
    later = sorted((name for name in ran if name not in theirs), reverse=True)
    try:
        return tuple(read_script(database.engine, f"tables/undo/{PurePosixPath(name).name}", folder) for name in later)
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
        if scripts.schema_version > state.schema_version:
            raise DeployError(
                f"The release has schema {scripts.schema_version} and the database {state.schema_version}: "
                "that is forward. Run rowpost apply with that release."
            )
        features = deployed_features(scripts, (entry.script_name for entry in state.journal))
        plan = build_plan(environment, scripts, state.registry, features=features)
        steps = tuple(
            step for step in plan.steps if step.object_kind in ("procedure", "trigger") or step.kind == "everytime"
        )
        diff = compare(replace(plan, items=steps, whole=False), replace(state, registry=()))
        running.run_part(whole_part(diff))
        for script in undo or ():
            running.run_script(script)
            database.call("forget_script", script_name=script.name.replace("/undo/", "/"))
        version = state.schema_version if undo is None else scripts.schema_version
        database.call("record_version", schema_version=version, tool_version=release.version or state.tool_version)
        dropped = () if undo is None else _later_procedures(plan, state)
        running.write([entry.forget_call for entry in dropped])
        for entry in dropped:  # after the calls: a later release may call procedures that only it has
            running.run_script(
                Script(entry.script_name, drop_object(database.engine, str(entry.object_name), str(entry.object_kind)))
            )
    applied = tuple(
        change.name for change in diff.to_run if isinstance(change.item, ScriptStep) and change.state != "everytime"
    )
    return ApplyResult(applied, len(diff.names("unchanged")), dropped=tuple(entry.script_name for entry in dropped))


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
