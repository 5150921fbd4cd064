"""rowpost plan, apply, verify, version: deploy rowpost and compare a database with the release."""

from __future__ import annotations

import platform
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from rowpost.cli.command import YesOption
from rowpost.cli.current_folder import import_from_current_folder
from rowpost.cli.exits import CommandInterrupted, ExitCode, Refused
from rowpost.cli.printing import table, visible
from rowpost.cli.session import PRODUCTION, Session
from rowpost.database.connection import Connection
from rowpost.database.contract import ROLES
from rowpost.database.sql_folder import schema_version
from rowpost.deploy.apply import apply, difference
from rowpost.deploy.capabilities import capabilities
from rowpost.deploy.diff import PlanDiff
from rowpost.deploy.features import Kept
from rowpost.deploy.parts import parts_by_queue
from rowpost.deploy.plan import Plan, plan
from rowpost.deploy.plan_files import write_plan_files
from rowpost.deploy.reading import read_entry, read_plan
from rowpost.deploy.release import go_back, open_release, undo_scripts, way_back_script, write_release_archive
from rowpost.deploy.review import Review, compare_releases, read_definition, review
from rowpost.deploy.scripts import ROLES_SCRIPT
from rowpost.deploy.taken import dotted
from rowpost.deploy.verify import verify
from rowpost.endpoint.hosting import undeclared_queues, with_sagas
from rowpost.endpoint.schedules import with_schedules
from rowpost.errors import HandlerNotFound, RowpostError, SchemaMissing
from rowpost.version import __version__

__all__ = ["run_apply", "run_verify", "show_plan", "show_version"]

#: features that an endpoint uses by itself: whether it does is known only to who can import it
OF_HANDLERS = ("outbox", "sagas", "schedules", "transactions")
ROLES_STAY = "The roles stay, because other databases of the server may use them."
STATES = {
    "added": "new",
    "changed": "changed",
    "drifted": "changed by hand, will be replaced",
    "altered": "table changed by hand, not replaced",
    "edited": "script edited after it ran: apply refuses",
    "dropped": "no longer part of the release",
    "undeclared": "no longer declared, empty: will be dropped",
    "revoked": "no longer declared: its rights will be revoked",
    "unknown": "not part of this release",
}


def _planned(session: Session, folder: Path | None = None) -> Plan:
    """Make the plan, including the saga tables of the environment's endpoints, whose code is in the current folder."""
    import_from_current_folder()

    unknown: list[HandlerNotFound] = []
    settings = with_sagas(session.whole or session.settings, unknown.append)
    own = with_schedules(session.settings)
    planned = plan(replace(own, sagas=settings.sagas), folder)
    if unknown:
        session.note(
            "Handlers cannot be imported here. If one is an endpoint with sagas, their tables are planned only if the "
            "environment declares them below `sagas`. Schedules that one may declare in code stay as they are. "
            f"The handlers: {'; '.join(dict.fromkeys(map(str, unknown)))}"
        )
    needed_by = "a handler of the environment" if unknown else ""
    return replace(planned, uncertain=tuple((feature, needed_by) for feature in OF_HANDLERS if needed_by))


def show_plan(
    session: Session,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the complete script for review, without connecting to the database.")
    ] = False,
    to_read: Annotated[
        bool,
        typer.Option("--review", help="With --sql: print each template once, and each queue's names with its hash."),
    ] = False,
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="Q", help="With --sql --review: print the scripts of one queue.")
    ] = None,
    by_queue: Annotated[
        bool,
        typer.Option("--by-queue", help="With --sql: write files into the folder --output, one for each transaction."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="With --sql: write the script to this file, or those of --by-queue here."),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="ZIP|FOLDER", help="With --sql: print the way back to a saved release.", exists=True
        ),
    ] = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="With --sql --to: also what apply --to --tables does.")
    ] = False,
    archive: Annotated[
        Path | None,
        typer.Option(
            "--release-archive",
            metavar="ZIP",
            help="Write this release's scripts to a zip file, for plan --from and apply --to.",
            dir_okay=False,
        ),
    ] = None,
    earlier: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="ZIP|FOLDER",
            help="Compare with a release archive or a release's sql folder, without connecting.",
            exists=True,
        ),
    ] = None,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 if apply would change anything.")] = False,
    outbox: Annotated[
        str | None, typer.Option("--outbox", metavar="NAME", help="Plan only the business database of this outbox.")
    ] = None,
) -> ExitCode:
    """Show what apply would change in the database and in the business databases of outboxes."""
    if (to_read and not (sql or output is not None)) or (queue is not None and not to_read):
        raise typer.BadParameter("--review is an option of plan --sql, and --queue one of plan --sql --review.")
    if by_queue and (output is None or to_read):
        raise typer.BadParameter("--by-queue writes files that run: name their folder with --output, without --review.")
    if output is not None and (output.is_file() if by_queue else output.is_dir()):
        raise typer.BadParameter(f"--output names a {'file' if by_queue else 'folder'}: {output}")
    if (to is not None and (by_queue or to_read or not (sql or output is not None))) or (tables and to is None):
        raise typer.BadParameter("--to is an option of plan --sql alone, and --tables one of plan --sql --to.")
    session.offline = sql or any(each is not None for each in (output, archive, earlier))
    session, *others = session.databases(outbox)
    planned = _planned(session)
    if archive is not None:
        session.note(f"Wrote {write_release_archive(archive)} scripts of rowpost {__version__} to {archive}.")
        return ExitCode.OK
    if sql or output is not None:
        document: dict[str, object] = {"hash": planned.hash, "engine": planned.engine}
        if by_queue and output is not None:
            _write_files(session, planned, output)
        elif to is not None:
            with open_release(to) as release:
                back = way_back_script(planned, _planned(session, release.folder), release.version, tables=tables)
            _print_text(session, document | {"script": back}, back, output)
        elif to_read:
            text = read_entry(planned, queue) if queue else read_plan(planned)
            _print_text(session, document | {"review": text}, text, output)
        else:
            document["steps"] = [
                {"name": each.script_name, "kind": each.kind, "hash": each.hash} for each in planned.steps
            ]
            _print_text(session, document | {"script": planned.script}, planned.script, output)
        for each in others:
            session.note(f"The business database {each.outbox} needs a separate script: add --outbox {each.outbox}")
        return ExitCode.OK
    if earlier is not None:
        with open_release(earlier) as release:
            found = compare_releases(_planned(session, release.folder), planned)
        _print_review(session, planned, found, f"against {earlier}")
        return ExitCode.FINDING if exit_code and found.items else ExitCode.OK
    changes = [_show_difference(each) for each in (session, *others)]
    return ExitCode.FINDING if exit_code and any(changes) else ExitCode.OK


def _show_difference(session: Session) -> bool:
    """Print what apply would change in one database. Return whether it would change anything."""
    planned = _planned(session)
    with session.connected() as database:
        diff = difference(database, planned)
        _print_difference(session, planned, diff, review(diff, database.engine, read_definition(database)))
        for queue, meant in dotted(database, [each for each in planned.queues if "." in each.table_name]):
            session.note(
                f"The queue {queue.name} has a dot in its name, in the schema {queue.schema_name}. If a schema is "
                f"meant: {meant.format()}"
            )
    return not diff.is_empty


def _write_files(session: Session, planned: Plan, folder: Path) -> None:
    manifest = write_plan_files(planned, folder)
    if session.as_json:
        session.document(manifest)
    else:
        session.note(f"Wrote {len(manifest['files'])} scripts to {folder}: manifest.json has their order and hashes.")


def _print_text(session: Session, document: dict[str, object], text: str, output: Path | None) -> None:
    """Print a text, or its JSON document, or write the text to a file."""
    if output is not None:
        output.write_text(text, encoding="utf-8", newline="\n")
        session.note(f"Wrote {text.count(chr(10))} lines to {output}.")
    elif session.as_json:
        session.document(document)
    else:
        typer.echo(text, nl=False)


def _print_difference(session: Session, planned: Plan, diff: PlanDiff, found: Review) -> None:
    if session.as_json:
        session.document(
            {
                "environment": planned.environment,
                "hash": planned.hash,
                "changes": [
                    {"state": item.state, "name": item.name} for item in found.items if item.state != "unknown"
                ],
                "review": _review_document(found),
                "unchanged": len(diff.names("unchanged")),
                "transactions_by_queue": [part.title for part in parts_by_queue(diff)],
                "undeclared": diff.undeclared,
                "kept": [asdict(each) for each in diff.kept],
                **_which(session),
                "unknown": [entry.script_name for entry in diff.unknown],
            }
        )
        return
    _print_review(session, planned, found, session.settings.target)
    _note_kept(session, diff.kept)
    if any(entry.script_name == ROLES_SCRIPT for entry in diff.dropped):
        session.note(f"apply revokes the rights of rowpost's roles in this database. {ROLES_STAY}")
    elif not (session.settings.has_roles or session.settings.embedded or ROLES in diff.plan.features):
        session.note("roles: none: no roles are made, and only the login that owns rowpost works.")
    changes = sum(count for state, count in found.counts.items() if state != "unknown")
    what = f"{changes} to change, " if changes else ""
    session.note(f"{what}{len(diff.names('unchanged'))} unchanged.{_also_registered(diff.undeclared)}")
    if not diff.is_empty:
        session.note(f"Transactions: 1, or {len(parts_by_queue(diff))} with rowpost apply --by-queue.")


def _print_review(session: Session, planned: Plan, found: Review, where: str) -> None:
    if session.as_json:
        session.document({"environment": planned.environment, "hash": planned.hash, "review": _review_document(found)})
        return
    session.note(f"{planned.environment}: {where}")
    for line in found.summary:
        session.note(line)
    if found.items:
        rows = [
            (STATES[i.state], i.name, i.feature, (i.old_hash or "-")[:12], (i.new_hash or "-")[:12])
            for i in found.items
        ]
        table(session.out, ("change", "object", "for", "old", "new"), rows)
    for item in found.items:
        if item.diff:
            session.out.print("\n" + visible(item.diff), soft_wrap=True)


def _review_document(found: Review) -> dict[str, object]:
    return {"counts": found.counts, "locks": found.locks, "pauses": found.pauses,
            "items": [asdict(item) for item in found.items]}  # fmt: skip


def _note_kept(session: Session, kept: tuple[Kept, ...]) -> None:
    """Name what stays although the environment does not declare it."""
    for each in kept:
        session.note(
            f"Stays although the environment does not declare it: {each.subject}, because {each.reason}. {each.remedy}"
        )


def _also_registered(names: tuple[str, ...]) -> str:
    return f" Registered but not declared in the environment: {', '.join(names)}." if names else ""


def run_apply(
    session: Session,
    yes: YesOption = False,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="ZIP|FOLDER",
            help="Go back to a saved release: run its procedures and grants again. Tables stay.",
            exists=True,
        ),
    ] = None,
    tables: Annotated[
        bool,
        typer.Option(
            "--tables",
            help="With --to: also undo what later releases changed in rowpost's own tables, and drop their procedures.",
        ),
    ] = False,
    by_queue: Annotated[
        bool,
        typer.Option("--by-queue", help="Use one transaction for the shared objects and one for each queue and saga."),
    ] = False,
) -> ExitCode:
    """Deploy rowpost and the environment's queues in one transaction. Business databases of outboxes come first."""
    if by_queue and to is not None:
        raise Refused("--by-queue cannot be used with --to: going back is one transaction.", ExitCode.USAGE)
    if tables and to is None:
        raise Refused("--tables needs the release to go back to: add --to ZIP.", ExitCode.USAGE)
    for each in reversed(session.databases()):
        _apply(each, yes, by_queue) if to is None else _go_back(each, to, yes, tables)
    return ExitCode.OK


def _note_missing_queues(session: Session, registered: tuple[str, ...]) -> None:
    """Name the queues that the environment's workers need and that do not exist:

    `rowpost run` refuses to start without them.

    `registered` are the queues that exist although the environment does not declare them.
    """
    settings = session.settings
    for name in undeclared_queues(settings):
        if name in registered:
            continue
        session.note(
            f"The workers need the queue {name!r}, which the environment {settings.environment!r} does not declare. "
            f"Add `{name}: {{}}` to its queues."
        )


def _apply(session: Session, yes: bool, by_queue: bool) -> None:
    planned = _planned(session)
    with session.connected() as database:
        if session.settings.environment == PRODUCTION and not yes:
            diff = difference(database, planned)
            _print_difference(session, planned, diff, review(diff, database.engine, read_definition(database)))
            session.confirm(f"Apply these changes to {PRODUCTION}, {session.settings.target}?", yes)
        try:
            with session.progress() as bar:
                task = bar.add_task("Waiting for the lock", total=None)
                result = apply(
                    database,
                    planned,
                    lambda number, total, name: bar.update(task, completed=number, total=total, description=name),
                    by_queue=by_queue,
                )
        except KeyboardInterrupt:
            raise CommandInterrupted(_state_after_interrupt(session, planned, by_queue)) from None
    if session.outbox is None:
        _note_missing_queues(session, result.undeclared)
    if session.as_json:
        session.document(
            {
                "applied": result.applied,
                "unchanged": result.unchanged,
                "altered": result.altered,
                "undeclared": result.undeclared,
                "dropped": (*result.dropped, *result.removed),
                "kept": [asdict(each) for each in result.kept],
                **_which(session),
            }
        )
        return
    gone = len(result.dropped) + len(result.removed)
    dropped = f"{gone} dropped, " if gone else ""
    session.note(
        f"{planned.environment}: {session.settings.target}: {len(result.applied)} applied, {dropped}"
        f"{result.unchanged} unchanged.{_also_registered(result.undeclared)}"
    )
    _note_kept(session, result.kept)
    if ROLES_SCRIPT in result.dropped:
        session.note(f"The rights of rowpost's roles in this database were revoked. {ROLES_STAY}")
    for name in result.altered:
        session.note(
            f"{name}: the table was changed by hand and was not replaced. rowpost verify shows the differences."
        )


def _which(session: Session) -> dict[str, str]:
    """Return the key that names an outbox's business database in a JSON document. Empty for the queues' database."""
    return {} if session.outbox is None else {"outbox": session.outbox}


def _go_back(session: Session, to: Path, yes: bool, tables: bool) -> None:
    with open_release(to) as release, session.deployed() as database:
        version = f"rowpost {release.version or to}"
        undo = undo_scripts(database, release) if tables else None
        for script in undo or ():
            session.note(f"-- {script.name}\n{script.text}")
        also = " Procedures that it does not have are dropped." if tables else ""
        also += f" Run these {len(undo)} scripts too? They may delete data." if undo else ""
        session.confirm(f"Go back to the procedures and grants of {version} in {session.settings.target}?{also}", yes)
        result = go_back(database, release, session.settings.environment, undo)
    undone = [script.name for script in undo or ()]
    document = {"applied": result.applied, "unchanged": result.unchanged, "undone": undone, "dropped": result.dropped,
                "version": release.version}  # fmt: skip
    stay = f"Undone: {', '.join(undone)}." if undone else "Tables were not changed."
    gone = f", {len(result.dropped)} dropped" if result.dropped else ""
    session.answer(document, f"Went back to {version}: {len(result.applied)} procedures changed{gone}. {stay}")


def _state_after_interrupt(session: Session, planned: Plan, by_queue: bool) -> str:
    """Ask the server whether the interrupted apply was committed."""
    try:
        with session.connected() as database:
            empty = difference(database, planned).is_empty
    except RowpostError:
        return (
            "rowpost plan shows what was applied"
            if by_queue
            else "either everything was applied or nothing: rowpost plan shows which"
        )
    if empty:
        return "everything was already applied"
    if by_queue:
        return "what was committed stays: rowpost plan shows what is left, and rowpost apply --by-queue goes on"
    return "rolled back, nothing was changed"


def run_verify(session: Session) -> ExitCode:
    """Compare the database with the plan and list every difference. Exit code 1 if there is one.

    Business databases of outboxes are compared too.
    """
    findings = [_verify(each) for each in session.databases()]
    return ExitCode.FINDING if any(findings) else ExitCode.OK


def _verify(session: Session) -> bool:
    """Print how one database differs from the plan, and remarks. Return whether it differs."""
    planned = _planned(session)
    with session.connected() as database:
        findings = verify(database, planned)
    clean = all(finding.remark for finding in findings)
    if session.as_json:
        session.document({"clean": clean, "findings": [asdict(finding) for finding in findings], **_which(session)})
        return not clean
    if findings:
        rows = [(each.subject, "remark: " * each.remark + each.detail, each.remedy) for each in findings]
        table(session.out, ("object", "finding", "remedy"), rows)
    if clean:
        where = planned.environment if session.outbox is None else f"{planned.environment}, outbox {session.outbox}"
        session.out.print(f"{where}: clean, everything is as planned.")
    return not clean


def show_version(session: Session) -> ExitCode:
    """Show the versions of rowpost, the deployed schema and the server, and which features the server supports."""
    with session.connected() as database:
        rows = _deployed(database)
        engine = database.engine
    version, tool, applied_at, server = rows[0] if rows else (None, None, None, None)
    features = capabilities(engine, server) if server else {}
    facts = {
        "rowpost": __version__,
        "python": platform.python_version(),
        "environment": session.settings.environment,
        "target": session.settings.target,
        "schema": schema_version(engine),
        "deployed_schema": version,
        "deployed_by": tool,
        "deployed_at": applied_at and applied_at.isoformat(sep=" ", timespec="seconds"),
        "server": server,
        "supports": [name for name, has in features.items() if has],
        "lacks": [name for name, has in features.items() if not has],
    }
    if session.as_json:
        session.document(facts)
    else:
        shown = {name: "; ".join(value) if isinstance(value, list) else value for name, value in facts.items()}
        table(session.out, ("", ""), [(name.replace("_", " "), value or "-") for name, value in shown.items()])
    return ExitCode.OK


def _deployed(database: Connection) -> list[tuple[Any, ...]]:
    try:
        return database.call("get_version")
    except SchemaMissing:
        return []
