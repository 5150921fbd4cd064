"""The commands `rowpost spark …`: analysis.py, finding.py, archives.py, bodies.py, jobs.py and replays.py hold one part
of them each.

running.py holds what they share. Spark itself is imported when a command runs, so that all other commands start without
it.
"""

from typing import Any

import typer
from typer.core import TyperGroup

from rowpost.cli.command import command
from rowpost.cli.exits import ExitCode
from rowpost.cli.spark import analysis, archives, bodies, finding, jobs, replays

__all__ = ["app"]

_RECIPES = "docs/guides/spark-recipes.md"
_REMOVED = {
    "adopt": (
        "Archives of plain Parquet files are not supported: read them with spark.read.parquet, and archive to a new "
        "folder."
    ),
    "load": (
        f"Write the rows with df.write.format('rowpost') and message_id: see 'Load rows into a queue' in {_RECIPES}."
    ),
    "quality": f"Check decoded messages with a condition: see 'Check the quality of messages' in {_RECIPES}.",
    "targets": f"Compare the metrics with your limits in SQL: see 'Measure service targets' in {_RECIPES}.",
}
_REMOVED_OPTIONS = {
    "--plot": f"Draw the metrics with matplotlib: see 'Draw metrics' in {_RECIPES}.",
    "--log": "Archive the audit queue, which keeps the messages that are received at once.",
    "--slot": "It belonged to --log, which was removed too.",
}


class _Commands(TyperGroup):
    """Tells users of a command or an option that was removed what to do instead."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:  # NoSuchOption, which has another module in each version of typer
            name = getattr(error, "option_name", None)
            if name not in _REMOVED_OPTIONS:
                raise
            typer.echo(f"rowpost: The option {name} was removed. {_REMOVED_OPTIONS[name]}", err=True)
            raise typer.Exit(ExitCode.USAGE) from None

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in _REMOVED:
            typer.echo(f"rowpost: The command `rowpost spark {cmd_name}` was removed. {_REMOVED[cmd_name]}", err=True)
            raise typer.Exit(ExitCode.USAGE)
        return super().get_command(ctx, cmd_name)


app = typer.Typer(
    help="Archive, measure and resend messages with Spark. It needs the extra rowpost[spark].",
    no_args_is_help=True,
    cls=_Commands,
)
for _each in (
    analysis.doctor,
    analysis.metrics,
    analysis.conversations,
    analysis.failures,
    finding.find,
    archives.archive,
    archives.retain,
    archives.compact,
    archives.erase,
    archives.verify,
    bodies.decode,
    bodies.schemas,
    replays.replay,
):
    command(app)(_each)
app.add_typer(jobs.app, name="jobs")
app.add_typer(replays.app, name="replays")
