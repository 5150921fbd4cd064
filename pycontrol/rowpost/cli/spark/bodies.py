"""rowpost spark decode, schemas: bodies as typed columns, and the files with their schemas."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.printing import table
from rowpost.cli.session import Session
from rowpost.cli.spark.running import ArchiveArgument, SparkOptions, counter, counts, local_folder, running

if TYPE_CHECKING:
    from rowpost.spark.jobs.schemas import Proposal, SchemaChange

__all__ = ["decode", "schemas"]


def decode(
    session: Session,
    archive: ArchiveArgument,
    out: Annotated[str, typer.Argument(metavar="OUT", help="A folder for the tables, or a URI.")],
    schemas: Annotated[Path, typer.Option("--schemas", metavar="FOLDER", help="The schema files of the message types.", file_okay=False)],
    *,
    options: SparkOptions,
) -> None:
    """Write the bodies of an archive as typed columns to one Delta table for each message type. Run it again to add what is new."""
    local_folder(archive)
    with running(session, options, "decode") as spark:
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
    *,
    options: SparkOptions,
) -> ExitCode:
    """Propose schemas of message types from archived bodies, or report how the bodies differ from the schemas that you keep."""
    if (propose is None) == (check is None):
        raise Refused("Name one folder: with --propose to write missing schemas, or with --check to compare.", ExitCode.USAGE)
    local_folder(archive)
    with running(session, options, "schemas") as spark:
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


def _print_changes(session: Session, changes: Sequence[SchemaChange]) -> ExitCode:
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
