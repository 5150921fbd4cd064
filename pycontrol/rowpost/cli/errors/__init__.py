"""rowpost errors: the messages in an error queue, one by one and many at once."""

from __future__ import annotations

import typer

from rowpost.cli.errors import listing, many, single

__all__ = ["app"]

app = typer.Typer(help="Inspect, retry, edit and discard failed messages.", no_args_is_help=True)
listing.register(app)
single.register(app)
many.register(app)
