"""The commands by name, and the help."""

from __future__ import annotations

from typing import Annotated

import typer

from rowpost.cli import (
    contents,
    deploy,
    errors,
    message,
    outboxes,
    queue,
    run,
    saga_upkeep,
    sagas,
    spark,
    spark_queues,
    subscriptions,
    transactions,
    upkeep,
)
from rowpost.cli import demo_command as demo
from rowpost.cli.command import EnvironmentOption, JsonOption
from rowpost.cli.exits import EXIT_CODES
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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print rowpost's version and leave.")
    ] = False,
) -> None:
    """A message queue that lives in SQL Server or PostgreSQL.

    Without an environment rowpost starts a private PostgreSQL of its own: try `rowpost demo`.
    """


run.register(app)
message.register(app)
deploy.register(app)
contents.register(queue.app)
upkeep.register(queue.app)
spark_queues.register(spark.app)
app.add_typer(queue.app, name="queue")
app.add_typer(errors.app, name="errors")
app.add_typer(subscriptions.app, name="subscriptions")
saga_upkeep.register(sagas.app)
app.add_typer(sagas.app, name="sagas")
app.add_typer(transactions.app, name="transactions")
app.add_typer(outboxes.app, name="outbox")
app.add_typer(spark.app, name="spark")
demo.register(app)
