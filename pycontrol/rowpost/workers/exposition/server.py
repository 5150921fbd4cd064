"""The HTTP server of a supervisor's metrics and health, in threads of its own.

    GET /metrics         the metrics, as text for Prometheus or OpenMetrics
    GET /health/live     200 while the supervisor's loop runs, else 503
    GET /health/ready    200 if it can handle messages, else 503 with one reason a line

There is no login: whoever reaches the address can read names of queues and counts. By default only this machine reaches
it.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from ipaddress import ip_address
from socket import AF_INET6, SHUT_RDWR, socket
from socketserver import ThreadingMixIn
from typing import IO, Any, cast
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app

from rowpost.errors import SettingsError
from rowpost.settings.metrics import MetricsAddress
from rowpost.workers.exposition.families import Families
from rowpost.workers.exposition.health import hindrances, live_problem
from rowpost.workers.exposition.observations import Observations, Status

__all__ = ["serving"]

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
#: seconds after which a connection that sends nothing is closed
TIMEOUT_S = 10.0
#: connections at a time, each with a thread; the oldest one is closed for a further one
MOST = 32
#: bytes of a request's first line
LONGEST_LINE = 65536


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    # on Windows it would let two processes listen on one port
    allow_reuse_address = sys.platform != "win32"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._open: dict[socket, None] = {}
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread. A client that sends or reads slowly is displaced by new ones."""
        with self._lock:
            oldest = next(iter(self._open)) if len(self._open) >= MOST else None
            if oldest is not None:
                self._open.pop(oldest)
            self._open[request] = None
        if oldest is not None:
            with suppress(OSError):
                oldest.shutdown(SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print what is a bug. A client that is slow, or gone, is no news."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def server_bind(self) -> None:
        """Bind without asking the name service for this machine's name, which may take seconds."""
        super(WSGIServer, self).server_bind()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()


class _ServerOfIPv6(_Server):
    address_family = AF_INET6


class _Answer(ServerHandler):
    def log_exception(self, exc_info: Any) -> None:
        """Print what is a bug, as above."""
        if not isinstance(exc_info[1], OSError):
            super().log_exception(exc_info)


class _Handler(WSGIRequestHandler):
    timeout = TIMEOUT_S

    def handle(self) -> None:
        """Handle one request, as the base class does, with an _Answer."""
        self.raw_requestline = self.rfile.readline(LONGEST_LINE + 1)
        if len(self.raw_requestline) > LONGEST_LINE:
            self.requestline = self.request_version = self.command = ""
            self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG)
        elif self.parse_request():
            answer = _Answer(
                self.rfile, cast(IO[bytes], self.wfile), self.get_stderr(), self.get_environ(), multithread=True
            )
            answer.request_handler = self  # type: ignore[attr-defined]
            answer.run(self.server.get_app())  # type: ignore[attr-defined]

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a scrape each few seconds is no news."""


def _application(read: Callable[[], Status], seen: Observations) -> App:
    registry = CollectorRegistry()
    registry.register(Families(read, seen))
    ProcessCollector(registry=registry)
    metrics: App = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        match environ["PATH_INFO"]:
            case "/metrics":
                return metrics(environ, start)
            case "/health/live":
                return _health(start, [problem] if (problem := live_problem(read())) else [])
            case "/health/ready":
                return _health(start, hindrances(read(), seen))
        return _answer(
            start, HTTPStatus.NOT_FOUND, "text/plain", "There are /metrics, /health/live and /health/ready.\n"
        )

    return app


def _health(start: Callable[..., Any], problems: list[str]) -> Iterable[bytes]:
    status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
    return _answer(
        start,
        status,
        "application/json",
        json.dumps({"status": "unavailable" if problems else "ok", "problems": problems}) + "\n",
    )


def _answer(start: Callable[..., Any], status: HTTPStatus, kind: str, text: str) -> Iterable[bytes]:
    body = text.encode()
    start(
        f"{status.value} {status.phrase}",
        [("Content-Type", f"{kind}; charset=utf-8"), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")],
    )
    return [body]


@contextmanager
def serving(address: MetricsAddress, read: Callable[[], Status], seen: Observations) -> Iterator[MetricsAddress]:
    """Serve until the block ends. Yields the address with the port that was taken.

    Raises:
        SettingsError: the address cannot be listened on.
    """
    try:
        server = make_server(address.host, address.port, _application(read, seen), _server_for(address.host), _Handler)
    except OSError as error:
        raise SettingsError(
            f"Metrics cannot be served at {address.url}: {error.strerror or error}. Name a free port of this machine, "
            "with --metrics or as supervisor.metrics in the environment's file."
        ) from error
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.2}, name="rowpost metrics server", daemon=True
    )
    thread.start()
    try:
        yield MetricsAddress(address.host, server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _server_for(host: str) -> type[_Server]:
    try:
        return _ServerOfIPv6 if ip_address(host).version == 6 else _Server  # noqa: PLR2004 -- the version of the protocol
    except ValueError:  # a name
        return _Server
