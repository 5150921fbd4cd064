"""The program's commands by name, and its help."""

from __future__ import annotations

from typing import Annotated

import typer

from rowpost.cli import deploy, errors, message, outbox, queue, sagas, spark, subscriptions, transactions
from rowpost.cli.command import EnvironmentOption, JsonOption
from rowpost.cli.demo import command as demo
from rowpost.cli.exits import EXIT_CODES
from rowpost.cli.run import command as run
from rowpost.version import __version__

__all__ = ["app"]

_EPILOG = "Exit codes:\n\n" + "\n\n".join(f"- **{code.value}** {meaning}" for code, meaning in EXIT_CODES.items())

app = typer.Typer(
    name="rowpost",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"rowpost {__version__}")
        raise typer.Exit


@app.callback()
def rowpost(
    env: EnvironmentOption = None,
    as_json: JsonOption = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version of rowpost and exit.")
    ] = False,
) -> None:
    """A message queue in SQL Server or PostgreSQL.

    Without an environment, rowpost starts a private PostgreSQL server: try `rowpost demo`.
    """


for _group in (run, message, deploy):
    _group.register(app)
for _name, _commands in (
    ("queue", queue),
    ("errors", errors),
    ("subscriptions", subscriptions),
    ("sagas", sagas),
    ("transactions", transactions),
    ("outbox", outbox),
    ("spark", spark),
):
    app.add_typer(_commands.app, name=_name)
demo.register(app)
