"""The commands `rowpost spark …`: analysis.py, archives.py, bodies.py, sending.py, jobs.py and replays.py hold one part of them each.

running.py holds what they share. Spark itself is imported when a command runs, so that all other commands start without it.
"""

import typer

from rowpost.cli.spark import analysis, archives, bodies, jobs, replays, sending

__all__ = ["app"]

app = typer.Typer(help="Archive, measure and resend messages with Spark. It needs the extra rowpost[spark].", no_args_is_help=True)
for _part in (analysis, archives, bodies, sending):
    _part.register(app)
app.add_typer(jobs.app, name="jobs")
app.add_typer(replays.app, name="replays")
