"""rowpost errors: the messages in an error queue, one by one and many at once."""

from __future__ import annotations

import typer

from rowpost.cli.command import Command, command
from rowpost.cli.errors import listing, many, single

__all__ = ["app"]

app = typer.Typer(help="Inspect, retry, edit and discard failed messages.", no_args_is_help=True)
_COMMANDS: dict[str, Command] = {
    "list": listing.list_errors,
    "show": listing.show,
    "retry": single.retry,
    "discard": single.discard,
    "edit": single.edit_message,
    "retry-all": many.retry_all,
    "discard-all": many.discard_all,
    "move-all": many.move_all,
    "edit-all": many.edit_all,
}
for _name, _function in _COMMANDS.items():
    command(app, _name)(_function)
