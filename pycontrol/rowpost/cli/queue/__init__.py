"""The commands `rowpost queue …`: definitions.py, contents.py, control.py and maintenance.py hold one part of them
each.
"""

import typer

from rowpost.cli.queue import contents, control, definitions, maintenance

__all__ = ["app"]

app = typer.Typer(help="Create, inspect, pause, maintain and empty queues.", no_args_is_help=True)
for _part in (definitions, contents, control, maintenance):
    _part.register(app)
