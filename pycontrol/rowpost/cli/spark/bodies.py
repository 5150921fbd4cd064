"""rowpost spark decode, schemas: bodies as typed columns, and the files with their schemas."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rowpost.cli.command import command
from rowpost.cli.printing import table
from rowpost.cli.session import Session
from rowpost.cli.spark.running import ArchiveArgument, ConfOption, MasterOption, counter, counts, local_folder, running

__all__ = ["SchemasOption", "register"]

SchemasOption = Annotated[Path, typer.Option("--schemas", metavar="FOLDER", help="The schema files of the message types.", file_okay=False)]


def register(app: typer.Typer) -> None:
    """Add the commands to a group."""
    command(app, "decode")(decode)


def decode(
    session: Session,
    archive: ArchiveArgument,
    out: Annotated[str, typer.Argument(metavar="OUT", help="A folder for the tables, or a URI.")],
    schemas: SchemasOption,
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
