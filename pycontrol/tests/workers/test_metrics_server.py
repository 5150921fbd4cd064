"""The server of the metrics, with clients that are slow, gone or many."""

import socket
from contextlib import ExitStack, suppress
from urllib.request import urlopen

import pytest

from rowpost.settings.metrics import MetricsAddress
from rowpost.workers.exposition import server
from rowpost.workers.exposition.observations import Observations


@pytest.fixture
def address(monkeypatch):
    def application(read, seen):
        def app(environ, start):
            start("200 OK", [("Content-Type", "text/plain")])
            return [b"x" * 20_000_000]

        return app

    monkeypatch.setattr(server, "_application", application)
    with server.serving(MetricsAddress("127.0.0.1", 0), lambda: None, Observations()) as address:
        yield ("127.0.0.1", address.port)


def ended(connection: socket.socket) -> bool:
    with suppress(ConnectionResetError):
        while connection.recv(1_000_000):
            pass
    return True


def test_many_slow_clients_displace_one_another_and_no_scrape(address):
    with ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(address, timeout=30)) for _ in range(server.MOST + 5)]
        for each in slow:
            with suppress(OSError):
                each.sendall(b"GET /metrics HTTP/1.1\r\n")

        with urlopen(f"http://{address[0]}:{address[1]}/metrics", timeout=30) as answer:
            assert answer.status == 200
        assert ended(slow[0])


def test_a_client_that_reads_nothing_or_leaves_is_no_traceback(address, monkeypatch, capfd):
    monkeypatch.setattr(server._Handler, "timeout", 0.2)

    with socket.create_connection(address, timeout=30) as silent, socket.create_connection(address, timeout=30) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert ended(silent)
        with socket.create_connection(address, timeout=30) as gone:
            gone.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert gone.recv(10)
        assert slow.recv(10)
        with urlopen(f"http://{address[0]}:{address[1]}/metrics", timeout=30) as answer:
            answer.read()

    assert capfd.readouterr().err == ""
