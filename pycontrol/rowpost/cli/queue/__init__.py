"""The commands `rowpost queue …`: definitions.py, contents.py, control.py and maintenance.py hold one part of them
each.
"""

import typer

from rowpost.cli.command import Command, command
from rowpost.cli.queue import contents, control, definitions, maintenance

__all__ = ["app"]

app = typer.Typer(help="Create, inspect, pause, maintain and empty queues.", no_args_is_help=True)
_COMMANDS: dict[str, Command] = {
    "create": definitions.create,
    "adopt": definitions.adopt,
    "drop": definitions.drop,
    "list": definitions.list_queues,
    "check": definitions.check,
    "grant": definitions.grant,
    "peek": contents.peek,
    "purge": contents.purge,
    "browse": contents.browse,
    "pause": control.pause_queue,
    "resume": control.resume_queue,
    "limit": control.limit,
    "metrics": maintenance.show_metrics,
    "maintain": maintenance.maintain,
}
for _name, _function in _COMMANDS.items():
    command(app, _name)(_function)
