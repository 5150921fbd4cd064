"""Serve the dashboard with uvicorn, and decide who may use it from the address on which it listens."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import re
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from rowpost.dashboard.access import LOOPBACK, Access, LoopbackAccess, ProxyAccess, TokenAccess
from rowpost.dashboard.connection_limits import BoundedProtocol
from rowpost.errors import SettingsError
from rowpost.wire.description import visible

__all__ = ["access_for", "below", "listen", "log_to", "make_server", "serve"]

STOP_S = 5
_PREFIX = re.compile(r"(/[\w.~-]+)+")


def access_for(
    host: str, token_file: Path | None, token: str | None, user_header: str | None, proxies: tuple[str, ...]
) -> Access:
    """Return who may use a dashboard that listens on this address. On loopback, that is everybody on this machine.

    Raises:
        SettingsError: another address needs a token, or a proxy that names the user.
    """
    if user_header is not None:
        if not proxies:
            raise SettingsError(
                "--user-header needs --proxy: the address of the proxy that sets it, as anybody else could write it."
            )
        return ProxyAccess(user_header, proxies)
    if proxies:
        raise SettingsError("--proxy needs --user-header: the header in which the proxy names the user.")
    if token_file is not None:
        try:
            return TokenAccess(token_file.read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(
                f"The token file {token_file} cannot be read: {getattr(error, 'strerror', None) or error}"
            ) from error
    if token:
        return TokenAccess(token.strip())
    if not _is_loopback(host):
        raise SettingsError(
            f"On {host} others than this machine's users could reach the dashboard: pass --token-file FILE, set "
            "ROWPOST_DASHBOARD_TOKEN, or pass --user-header HEADER --proxy ADDRESS for a proxy that signs users in. "
            "Or listen on 127.0.0.1."
        )
    return LoopbackAccess()


def _is_loopback(host: str) -> bool:
    try:
        return host in LOOPBACK or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Open the socket; port 0 takes a free one. Raises SettingsError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # named as TCP, as asyncio sends without a delay only then
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(128)
    except OSError as error:
        made.close()
        raise SettingsError(
            f"The dashboard cannot listen on {host}:{port}: {error.strerror}. Choose another address with --host and "
            "--port."
        ) from error
    return made


def below(app: ASGIApp, prefix: str) -> ASGIApp:
    """Return the application below a path such as /rowpost, as a proxy serves it, whether the proxy removes the path
    from requests or not.

    Raises:
        SettingsError: the path has another form.
    """
    path = prefix.rstrip("/")
    if not path:
        return app
    if not _PREFIX.fullmatch(path) or not path.isascii():
        raise SettingsError(
            f"--prefix must be a path such as /rowpost, of letters, digits and . _ ~ - (got {prefix!r})."
        )

    async def prefixed(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = scope["path"]
            whole = given == path or given.startswith(f"{path}/")
            scope = {**scope, "root_path": path, "path": given if whole else path + given}
        await app(scope, receive, send)

    return prefixed


def make_server(app: ASGIApp) -> uvicorn.Server:
    """Return a server that does not believe headers about other addresses, and tells nothing about itself."""
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        ws="none",
        http=BoundedProtocol,
        loop="asyncio",
        lifespan="on",
        timeout_graceful_shutdown=STOP_S,
        limit_concurrency=200,
    )
    return uvicorn.Server(config)


def serve(app: ASGIApp, opened: socket.socket) -> None:
    """Answer requests until SIGINT or SIGTERM; running requests have 5 seconds to end."""
    server = make_server(app)
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    # uvicorn raises a signal that it caught once more at its end, which must not end the program before its
    # connections are closed
    try:
        asyncio.run(server.serve(sockets=[opened]))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Lines(logging.Formatter):
    """One line a record: text, or a document."""

    def __init__(self, as_json: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        if not self._as_json:
            return visible(super().format(record))
        operation: dict[str, Any] = getattr(
            record, "operation", {"event": "Logged", "logger": record.name, "text": record.getMessage()}
        )
        return json.dumps({"at": record.created, "level": record.levelname.lower(), **operation}, default=str)


def log_to(stream: Any = None, *, as_json: bool = False) -> None:
    """Write the log of the dashboard, with a line for each operation, to a stream; by default to standard error."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Lines(as_json))
    log = logging.getLogger("rowpost.dashboard")
    log.setLevel(logging.INFO)
    log.handlers[:] = [handler]
    log.propagate = False
