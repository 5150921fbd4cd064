"""rowpost spark decode, schemas: bodies as typed columns, and the files with their schemas."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.session import Session
from rowpost.cli.spark.running import ArchiveArgument, SparkOptions, running

if TYPE_CHECKING:
    from rowpost.spark.jobs.schemas import Proposal, SchemaChange

__all__ = ["decode", "schemas"]


def decode(
    session: Session,
    archive: ArchiveArgument,
    out: Annotated[str, typer.Argument(metavar="OUT", help="A folder for the tables, or a URI.")],
    schemas: Annotated[
        Path,
        typer.Option("--schemas", metavar="FOLDER", help="The schema files of the message types.", file_okay=False),
    ],
    *,
    options: SparkOptions,
) -> None:
    """Write the bodies of an archive as typed columns to one Delta table for each message type.

    Run it again to add what is new.
    """
    with running(session, options, "decode", archive) as spark:
        from rowpost.spark.bodies.schema_files import read_schemas
        from rowpost.spark.jobs.decode import run

        done = run(spark, archive, out, read_schemas(schemas), session.counter("{done} of {of} types decoded"))
    rows, missing = [asdict(each) for each in done["tables"]], done["without_schema"]
    names = ("message type", "added", "with rescued values", "with errors", "new columns")
    session.rows(
        names, [(r["message_type"], r["added"], r["rescued"], r["errors"], ", ".join(r["new_columns"])) for r in rows]
    )
    for name, number in missing.items():
        session.remark(
            f"{number:,} messages {f'of the type {name} have no schema' if name else 'have no type'}, and are in no "
            "table."
        )
    totals = {key: sum(row[key] for row in rows) for key in ("added", "rescued", "errors")}
    session.counts(
        {**totals, "archive_version": done["archive_version"], "out": out, "without_schema": sum(missing.values())},
        tables=rows,
        types_without_schema={name or "": number for name, number in missing.items()},
    )


def schemas(
    session: Session,
    archive: ArchiveArgument,
    propose: Annotated[
        Path | None,
        typer.Option(
            "--propose",
            metavar="FOLDER",
            help="Write a schema file for each type that has none in this folder.",
            file_okay=False,
        ),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            "--check",
            metavar="FOLDER",
            help="Compare the bodies with the schemas in this folder. Exit code 1 if they differ.",
            file_okay=False,
        ),
    ] = None,
    types: Annotated[
        str, typer.Option("--types", metavar="PATTERN", help="Only these message types, such as Shop.*.")
    ] = "*",
    *,
    options: SparkOptions,
) -> ExitCode:
    """Propose schemas of message types from archived bodies, or report how the bodies differ from the schemas that you
    keep.
    """
    if (propose is None) == (check is None):
        raise Refused(
            "Name one folder: with --propose to write missing schemas, or with --check to compare.", ExitCode.USAGE
        )
    with running(session, options, "schemas", archive) as spark:
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
    names = ("message type", "messages", "fields", "broken bodies", "always empty")
    session.rows(
        names, [(each.message_type, each.messages, each.fields, each.broken, ", ".join(each.unknown)) for each in found]
    )
    if written:
        session.remark(
            "Read the files before you commit them: XML has no types, and a few bodies may not show all fields."
        )
    session.counts({"types": len(found), "written": len(written), "folder": folder}, files=sorted(written))
    return ExitCode.OK


def _print_changes(session: Session, changes: Sequence[SchemaChange]) -> ExitCode:
    if changes:
        names = ("message type", "field", "change", "schema", "messages", "of", "example")
        of = attrgetter("message_type", "field", "kind", "expected", "messages", "of", "example")
        session.rows(names, map(of, changes))
    else:
        session.remark("All bodies have the fields and types of their schemas.")
    session.counts(
        {"changes": len(changes), "types": len({each.message_type for each in changes})},
        details=list(map(asdict, changes)),
    )
    return ExitCode.FINDING if changes else ExitCode.OK
