"""rowpost dashboard: serve the dashboard of an environment."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.session import Session
from rowpost.version import install_command

__all__ = ["dashboard"]

PORT = 8470


def dashboard(
    session: Session,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="The address to listen on. Other ones than loopback need a token or a proxy.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The port to listen on; 0 takes a free one.")
    ] = PORT,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer no operation, and refuse all.")] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="The file with the token that users need. Default: $ROWPOST_DASHBOARD_TOKEN.",
        ),
    ] = None,
    user_header: Annotated[
        str | None,
        typer.Option(
            "--user-header", metavar="HEADER", help="The header in which a proxy names the user who signed in."
        ),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option("--proxy", metavar="ADDRESS", help="With --user-header: the proxy's address. May be repeated."),
    ] = None,
    prefix: Annotated[
        str,
        typer.Option(
            "--prefix", metavar="PATH", help="The path below which a proxy serves the pages, such as /rowpost."
        ),
    ] = "",
) -> None:
    """Serve web pages: queues, failed messages, subscriptions, sagas, deployment. Runs until Ctrl-C or SIGTERM.

    The pages show and allow what the database allows the environment's login.
    """
    missing = [name for name in ("starlette", "uvicorn", "jinja2") if find_spec(name) is None]
    if missing:
        raise Refused(
            f"The dashboard needs {', '.join(missing)}, not installed here. Run: {install_command('dashboard')}",
            ExitCode.SETTINGS,
        )
    # imported here because the other commands do not need these packages
    from rowpost.dashboard import app
    from rowpost.dashboard.server import access_for, below, listen, log_to, serve

    access = access_for(host, token_file, os.environ.get("ROWPOST_DASHBOARD_TOKEN"), user_header, tuple(proxy or ()))
    made = below(app(session.settings, read_only=read_only, access=access), prefix)
    with session.deployed(), listen(host, port) as opened:
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{opened.getsockname()[1]}{prefix.rstrip('/')}/"
        session.answer(
            {"event": "Serving", "url": url, "read_only": read_only},
            f"The dashboard of {session.settings.environment} ({session.settings.target}) is at {url} Ctrl-C stops it.",
        )
        log_to(as_json=session.as_json or session.settings.log.format == "json")
        serve(made, opened)
