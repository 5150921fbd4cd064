"""Count what a client sends to SQL Server: a TCP proxy that splits the TDS stream by its packet headers.

The proxy passes every byte on unchanged. It reads the direction to the server only, as far as the specification *[MS-TDS]:
Tabular Data Stream Protocol* describes it in the sections *Packet Header*, *SQLBatch* and *RPC Request*. One message of the client is
one round trip, because the client waits for the response. Use `Encrypt=no`: with encryption only the login is, and can be, seen.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

__all__ = ["Request", "Splitter", "through_proxy"]

_HEADER = struct.Struct(">BBHHBB")
_LAST = 0x01  # status bit: end of message
_TLS = range(20, 24)  # record types of TLS: the login is encrypted also with Encrypt=no
_KINDS = {1: "SQLBatch", 3: "RPC", 6: "Attention", 7: "BulkLoad", 14: "TransactionManager"}
_PROCEDURES = {
    10: "sp_executesql",
    11: "sp_prepare",
    12: "sp_execute",
    13: "sp_prepexec",
    14: "sp_prepexecrpc",
    15: "sp_unprepare",
}


@dataclass(frozen=True)
class Request:
    """One message of a client. `text` is the batch of a SQLBatch, and the name of the procedure of an RPC."""

    kind: str
    text: str = ""


class Splitter:
    """Turn the bytes of one connection, in pieces of any size, into requests. Messages before and at the login are left out."""

    def __init__(self) -> None:
        self._rest = b""
        self._message = b""

    def feed(self, data: bytes) -> list[Request]:
        """Return the requests that end in this piece of the stream."""
        self._rest += data
        found = []
        while len(self._rest) >= _HEADER.size:
            kind, status, length, *_ = _HEADER.unpack_from(self._rest)
            if kind in _TLS:
                length = int.from_bytes(self._rest[3:5]) + 5
            if len(self._rest) < length:
                break
            packet, self._rest = self._rest[:length], self._rest[length:]
            if kind in _KINDS:
                self._message += packet[_HEADER.size :]
                if status & _LAST:
                    found.append(_request(_KINDS[kind], self._message))
                    self._message = b""
        return found


def _request(kind: str, message: bytes) -> Request:
    if kind not in ("SQLBatch", "RPC"):
        return Request(kind)
    content = message[int.from_bytes(message[:4], "little") :]  # after the headers of all requests
    if kind == "SQLBatch":
        return Request(kind, content.decode("utf-16-le"))
    characters = int.from_bytes(content[:2], "little")
    if characters == 0xFFFF:
        number = int.from_bytes(content[2:4], "little")
        return Request(kind, _PROCEDURES.get(number, f"procedure {number}"))
    return Request(kind, content[2 : 2 + 2 * characters].decode("utf-16-le"))


@contextmanager
def through_proxy(url: str) -> Iterator[tuple[str, list[Request]]]:
    """Start a proxy before the server of an ODBC connection string; yield the string through it, and the list that requests join.

    Raises:
        ValueError: the string names no server, or does not say `Encrypt=no`.
    """
    if not re.search(r"(?i)(^|;)\s*encrypt\s*=\s*(no|optional)\s*(;|$)", url):
        raise ValueError("A proxy can count requests only without encryption: add Encrypt=no to the connection string.")
    found = re.search(r"(?i)(?<![^;])\s*server\s*=\s*(?:tcp:)?([^;,]+)(?:,(\d+))?", url)
    if not found:
        raise ValueError("The connection string names no Server=host,port.")
    server = (found[1].strip(), int(found[2] or 1433))
    requests: list[Request] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, server, requests), daemon=True).start()
        yield url.replace(found[0], f"Server=127.0.0.1,{listener.getsockname()[1]}"), requests


def _accept(listener: socket.socket, server: tuple[str, int], requests: list[Request]) -> None:
    with suppress(OSError):  # closed: the block is over
        while True:
            client, _ = listener.accept()
            upstream = socket.create_connection(server)
            for each in (client, upstream):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_pass_on, args=(client, upstream, Splitter(), requests), daemon=True).start()
            threading.Thread(target=_pass_on, args=(upstream, client, None, requests), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket, splitter: Splitter | None, requests: list[Request]) -> None:
    with suppress(OSError):  # one side closed its connection
        while data := source.recv(65536):
            if splitter:
                requests += splitter.feed(data)
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
