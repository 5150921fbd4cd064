"""The commands `rowpost queue …`: definitions.py, contents.py and maintenance.py hold one part of them each."""

import typer

from rowpost.cli.queue import contents, definitions, maintenance

__all__ = ["app"]

app = typer.Typer(help="Create, inspect, maintain and empty queues.", no_args_is_help=True)
for _part in (definitions, contents, maintenance):
    _part.register(app)
