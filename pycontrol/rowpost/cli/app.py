"""The program's commands by name, and its help."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rowpost.cli.command import EnvironmentOption, JsonOption, command
from rowpost.cli.exits import ExitCode, stop_before_start
from rowpost.version import __version__

__all__ = ["app"]

_EPILOG = "Exit codes:\n\n" + "\n\n".join(f"- **{code.value}** {code.meaning}" for code in ExitCode)

#: the module of each command, and in it the command's function or the `app` of a group of commands
_MODULES = {
    "run": "run.command:run",
    "send": "message:send",
    "publish": "message:publish",
    "receive": "message:receive",
    "message": "messages:app",
    "plan": "deploy:show_plan",
    "apply": "deploy:run_apply",
    "verify": "deploy:run_verify",
    "version": "deploy:show_version",
    "queue": "queue:app",
    "workers": "workers:workers",
    "delayed": "delayed:app",
    "errors": "errors:app",
    "operations": "operations:app",
    "subscriptions": "subscriptions:app",
    "schedules": "schedules:app",
    "sagas": "sagas:app",
    "transactions": "transactions:app",
    "outbox": "outbox:app",
    "bridge": "run.bridge:app",
    "dashboard": "run.dashboard:dashboard",
    "archive": "archive:archive",
    "spark": "spark:app",
    "doctor": "doctor:doctor",
    "demo": "demo.command:demo",
}


class _Commands(TyperGroup):
    """Imports the module of a command when the command is used.

    A start of the program loads no other command's modules.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in _MODULES and cmd_name not in self.commands:
            try:
                self.commands[cmd_name] = _load(cmd_name)
            except KeyboardInterrupt:
                stop_before_start()
        return super().get_command(ctx, cmd_name)


def _load(name: str) -> Any:
    module, _, attribute = _MODULES[name].partition(":")
    found = getattr(import_module(f"rowpost.cli.{module}"), attribute)
    holder = typer.Typer(rich_markup_mode="markdown")
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        command(holder, name)(found)
    return typer.main.get_group(holder).commands[name]


app = typer.Typer(
    name="rowpost",
    cls=_Commands,
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
