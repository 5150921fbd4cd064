"""A network that becomes silent: packets no longer arrive, and nobody closes a connection.

    python -m tests.support.half_open URL OPTIONS

Two connections reach the server of URL through a proxy. One waits for a reply, the other one does nothing. Then the proxy's sockets
drop each packet that comes, without an acknowledgement, and the second connection sends a statement as well. Printed is, as JSON,
how each call ended: the name of the error's class, and the seconds since the statement was sent. Linux only.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import sys
import threading
import time
from urllib.parse import parse_qs, urlsplit

from rowpost.database.connection import Connection, connect_url
from rowpost.errors import RowpostError

__all__ = ["LIMIT_S", "command"]

#: seconds after which calls are given up
LIMIT_S = 60
_SO_ATTACH_FILTER = 26
#: a program of the kernel's packet filter that keeps 0 bytes of each packet
_DROP = struct.pack("HBBI", 0x06, 0, 0, 0)


def command(url: str, options: str) -> list[str]:
    """Return the command for a PostgreSQL URL with a socket's folder as host, and for settings of libpq such as a=1&b=2."""
    return [sys.executable, "-m", "tests.support.half_open", url, options]


def main(url: str, options: str) -> None:
    parts = urlsplit(url)
    clients: list[socket.socket] = []
    port = serve(clients, f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.{parts.port or 5432}")
    through = f"{parts.scheme}://postgres@127.0.0.1:{port}{parts.path}?{options}"
    waiting, idle = connect_url("postgresql", through), connect_url("postgresql", through)
    ends: dict[str, tuple[str, float]] = {}
    begun = threading.Thread(target=attempt, args=(waiting, f"SELECT pg_sleep({LIMIT_S})", "waits", ends), daemon=True)
    begun.start()
    with connect_url("postgresql", url) as look:
        sleeps = "SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND pid = %s"
        while not look.driver_connection.execute(sleeps, [waiting.driver_connection.info.backend_pid]).fetchall():
            time.sleep(0.01)
    for each in clients:
        silence(each)
    sent = threading.Thread(target=attempt, args=(idle, "SELECT 1", "sends", ends), daemon=True)
    sent.start()
    for thread in (begun, sent):
        thread.join(LIMIT_S)
    print(json.dumps(ends), flush=True)
    os._exit(0)  # without the attempt to close what nobody answers


def attempt(database: Connection, statement: str, name: str, ends: dict[str, tuple[str, float]]) -> None:
    """Record how a statement ends."""
    begun = time.monotonic()
    try:
        with database.translated():
            database.driver_connection.execute(statement)
    except RowpostError as error:
        ends[name] = (type(error).__name__, round(time.monotonic() - begun, 1))


def silence(client: socket.socket) -> None:
    """Drop what comes to a socket from now on."""
    program = ctypes.create_string_buffer(_DROP, len(_DROP))
    client.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program)))


def serve(clients: list[socket.socket], path: str) -> int:
    """Pass connections on to the server's socket, note them in `clients`, and return the port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            client, _ = listener.accept()
            clients.append(client)
            server = socket.socket(socket.AF_UNIX)
            server.connect(path)
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=copy, args=(source, target), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


def copy(source: socket.socket, target: socket.socket) -> None:
    """Copy what one end says to the other."""
    while data := source.recv(65536):
        target.sendall(data)


if __name__ == "__main__":
    main(*sys.argv[1:])
