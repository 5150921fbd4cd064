"""rowpost spark decode, schemas, quality: bodies as typed columns, the files with their schemas, and what is expected of messages."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rowpost.cli.command import command
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.formats import parse_duration
from rowpost.cli.printing import table
from rowpost.cli.session import Session
from rowpost.cli.spark.running import ArchiveArgument, ConfOption, MasterOption, counter, counts, local_folder, running

if TYPE_CHECKING:
    from rowpost.spark.jobs.quality import Outcome
    from rowpost.spark.jobs.schemas import Change, Proposal

__all__ = ["SinceOption", "register"]

SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="DURATION", help="Only messages of the last days, such as 7d, by the archive's days.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to a group."""
    command(app, "decode")(decode)
    command(app, "schemas")(schemas)
    command(app, "quality")(quality)


def decode(
    session: Session,
    archive: ArchiveArgument,
    out: Annotated[str, typer.Argument(metavar="OUT", help="A folder for the tables, or a URI.")],
    schemas: Annotated[Path, typer.Option("--schemas", metavar="FOLDER", help="The schema files of the message types.", file_okay=False)],
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Write the bodies of an archive as typed columns to one Delta table for each message type. Run it again to add what is new."""
    local_folder(archive)
    with running(session, master, conf, "decode") as spark:
        from rowpost.spark.bodies.schema_files import read_schemas
        from rowpost.spark.jobs.decoded_tables import run

        done = run(spark, archive, out, read_schemas(schemas), counter(session, "{done} of {of} types decoded"))
    rows, missing = [asdict(each) for each in done["tables"]], done["without_schema"]
    if not session.as_json:
        names = ("message type", "added", "with rescued values", "with errors", "new columns")
        cells = [(r["message_type"], f"{r['added']:,}", f"{r['rescued']:,}", f"{r['errors']:,}", ", ".join(r["new_columns"])) for r in rows]
        table(session.out, names, cells, right=names[1:4])
        for name, number in missing.items():
            session.note(f"{number:,} messages {f'of the type {name} have no schema' if name else 'have no type'}, and are in no table.")
    totals = {key: sum(row[key] for row in rows) for key in ("added", "rescued", "errors")}
    counts(session, {**totals, "archive_version": done["archive_version"], "out": out, "without_schema": sum(missing.values()),
                     **({"tables": rows, "types_without_schema": {name or "": number for name, number in missing.items()}} if session.as_json else {})})  # fmt: skip


def schemas(
    session: Session,
    archive: ArchiveArgument,
    propose: Annotated[
        Path | None,
        typer.Option("--propose", metavar="FOLDER", help="Write a schema file for each type that has none in this folder.", file_okay=False),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            "--check", metavar="FOLDER", help="Compare the bodies with the schemas in this folder. Exit code 1 if they differ.", file_okay=False
        ),
    ] = None,
    types: Annotated[str, typer.Option("--types", metavar="PATTERN", help="Only these message types, such as Shop.*.")] = "*",
    master: MasterOption = None,
    conf: ConfOption = None,
) -> ExitCode:
    """Propose schemas of message types from archived bodies, or report how the bodies differ from the schemas that you keep."""
    if (propose is None) == (check is None):
        raise Refused("Name one folder: with --propose to write missing schemas, or with --check to compare.", ExitCode.USAGE)
    local_folder(archive)
    with running(session, master, conf, "schemas") as spark:
        from rowpost.spark.bodies.schema_files import read_schemas
        from rowpost.spark.jobs import schemas as job
        from rowpost.spark.jobs.archive import read_archive

        messages = job.of_types(read_archive(spark, archive), types)
        if propose is not None:
            found = job.proposals(messages, job.kept(propose))
            written = {str(path) for path in job.write(propose, found)}
            changes = []
        elif check is not None:
            changes = job.check(messages, read_schemas(check))
    return _print_changes(session, changes) if propose is None else _print_proposals(session, propose, found, written)


def _print_proposals(session: Session, folder: Path, found: Sequence[Proposal], written: Collection[str]) -> ExitCode:
    if not session.as_json:
        names = ("message type", "messages", "fields", "broken bodies", "always empty")
        cells = [(p.message_type, f"{p.messages:,}", p.fields, f"{p.broken:,}", ", ".join(p.unknown)) for p in found]
        table(session.out, names, cells, right=names[1:4])
        if written:
            session.note("Read the files before you commit them: XML has no types, and a few bodies may not show all fields.")
    counts(session, {"types": len(found), "written": len(written), "folder": folder, **({"files": sorted(written)} if session.as_json else {})})
    return ExitCode.OK


def _print_changes(session: Session, changes: Sequence[Change]) -> ExitCode:
    if not session.as_json:
        names = ("message type", "field", "change", "schema", "messages", "of", "example")
        cells = [(c.message_type, c.field, c.kind, c.expected or "", f"{c.messages:,}", f"{c.of:,}", c.example or "") for c in changes]
        if cells:
            table(session.out, names, cells, right=names[4:6])
        else:
            session.note("All bodies have the fields and types of their schemas.")
    counts(session, {"changes": len(changes), "types": len({c.message_type for c in changes}),
                     **({"details": [asdict(c) for c in changes]} if session.as_json else {})})  # fmt: skip
    return ExitCode.FINDING if changes else ExitCode.OK


def quality(
    session: Session,
    archive: ArchiveArgument,
    expect: Annotated[
        Path, typer.Option("--expect", metavar="FILE", help="A YAML file with rules: see docs/guides/spark-bodies.md.", exists=True, dir_okay=False)
    ],
    apart: Annotated[
        str | None,
        typer.Option(
            "--apart",
            metavar="OUT",
            help="Add failing messages, with the names of the rules, to a Delta table in this folder.",
        ),
    ] = None,
    since: SinceOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> ExitCode:
    """Compare messages with expectations of their types. Exit code 1 if a rule of severity error fails above its allowed share."""
    from rowpost.spark.bodies.expectations import read_expectations

    expectations, span = read_expectations(expect), None if since is None else parse_duration(since)
    local_folder(archive)
    with running(session, master, conf, "quality") as spark:
        from rowpost.spark.bodies.schema_files import read_schemas
        from rowpost.spark.jobs.quality import run

        known = {} if expectations.schemas is None else read_schemas(expectations.schemas)
        outcomes, done = run(spark, archive, expectations, known, today=datetime.now(UTC).date(), span=span, apart=apart)
    breaches = [each.rule.name for each in outcomes if each.is_breach]
    if not session.as_json:
        _print_outcomes(session, outcomes)
    details = {"rules": [_as_json(each) for each in outcomes]} if session.as_json else {}
    counts(session, {"rules_failed": sum(1 for each in outcomes if each.failed), "breaches": len(breaches), **done, "out": apart, **details})
    return ExitCode.FINDING if breaches else ExitCode.OK


def _print_outcomes(session: Session, outcomes: Sequence[Outcome]) -> None:
    cells = [
        (each.rule.name, day["message_type"] or "", day["day"], f"{day['messages']:,}", f"{day['failed']:,}", day["example"] or "")
        for each in outcomes for day in each.days if day["failed"]
    ]  # fmt: skip
    if cells:
        table(session.out, ("rule", "message type", "day", "messages", "failed", "example"), cells, right=("messages", "failed"))
    totals = [
        (each.rule.name, each.rule.severity, f"{each.messages:,}", f"{each.failed:,}", f"{each.share:.3%}", f"{each.rule.allowed:.3%}",
         "breach" if each.is_breach else "ok" if not each.failed else "within" if each.rule.severity == "error" else "warning")
        for each in outcomes
    ]  # fmt: skip
    table(
        session.out,
        ("rule", "severity", "messages", "failed", "share", "allowed", "result"),
        totals,
        right=("messages", "failed", "share", "allowed"),
    )


def _as_json(outcome: Outcome) -> dict[str, object]:
    return {"rule": outcome.rule.name, "severity": outcome.rule.severity, "messages": outcome.messages, "failed": outcome.failed,
            "share": outcome.share, "allowed": outcome.rule.allowed, "breach": outcome.is_breach, "days": list(outcome.days)}  # fmt: skip
