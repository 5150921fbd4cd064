"""What a client can do before it has signed in: real sockets against the real server."""

import logging
import re
import socket
from contextlib import ExitStack, suppress

import httpx
import pytest

from rowpost.dashboard import app, connection_limits, refusals
from rowpost.dashboard.access import TokenAccess
from rowpost.dashboard.application import LARGEST_SIGN_IN
from tests.support.dashboard import serving
from tests.support.workers import eventually

TOKEN = "t" * 32


@pytest.fixture
def client(target):
    if target.babelfish:
        pytest.skip("Babelfish has no HAS_PERMS_BY_NAME for objects")
    with serving(app(target.settings, access=TokenAccess(TOKEN))) as client:
        yield client


def connect(client: httpx.Client, text: str = "") -> socket.socket:
    made = socket.create_connection((client.base_url.host, client.base_url.port), timeout=30)
    made.sendall(text.encode())
    return made


def answered(connection: socket.socket) -> None:
    """Read one answer to its end."""
    read = b""
    while b"\r\n\r\n" not in read:
        read += connection.recv(65536)
    head, _, body = read.partition(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1])
    while len(body) < length:
        body += connection.recv(65536)


def ended(connection: socket.socket) -> bool:
    """Whether the server has closed the connection; waits for it."""
    with suppress(ConnectionResetError):
        while connection.recv(65536):
            pass
    return True


def test_connections_that_never_end_their_request_displace_one_another_and_nobody_else(client):
    signed_in = {"Authorization": f"Bearer {TOKEN}"}
    with ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(connect(client, "GET / HTTP/1.1\r\nHost: x\r\n"))
        answers = {client.get("/api/v1/queues", headers=signed_in).status_code for _ in range(5)}

    assert answers == {200}


def test_a_head_that_does_not_end_is_closed(client, monkeypatch):
    monkeypatch.setattr(connection_limits, "HEAD_S", 0.2)

    with connect(client) as silent, connect(client, "GET / HTTP/1.1\r\nHost: x\r\n") as begun:
        assert [ended(each) for each in (silent, begun)] == [True, True]


def test_a_body_that_does_not_end_is_closed_even_if_its_request_is_answered(client, monkeypatch):
    monkeypatch.setattr(connection_limits, "BODY_S", 0.2)

    with connect(client, "POST /sign-in HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\ntoken=") as waited:
        assert ended(waited)
    with connect(client, "POST /delayed/Sales HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\nx") as refused:
        assert refused.recv(65536).startswith(b"HTTP/1.1 303")
        assert ended(refused)


def test_an_idle_connection_may_send_a_second_request_after_the_time_of_a_head(client, monkeypatch):
    monkeypatch.setattr(connection_limits, "HEAD_S", 0.2)
    get = "GET /static/dashboard.css HTTP/1.1\r\nHost: x\r\n\r\n"
    with connect(client, get) as kept, connect(client) as other:
        answered(kept)
        assert ended(other)  # the time of a head is over

        kept.sendall(get.encode())

        assert kept.recv(65536).startswith(b"HTTP/1.1 200")


def test_a_sign_in_is_small(client):
    refused = client.post("/sign-in", data={"token": "x" * LARGEST_SIGN_IN})

    assert refused.status_code == 413


@pytest.mark.parametrize("cookie", ["9" * 5000 + ".x", "²." + "x", "." * 3000, "9" * 12 + ".ä"])
def test_a_cookie_of_any_form_is_refused_without_a_word(client, caplog, cookie):
    answer = client.get("/", headers={"Cookie": f"rowpost_session={cookie}".encode()})

    assert (answer.status_code, answer.headers["location"], caplog.text) == (303, "/sign-in", "")


def test_a_body_that_breaks_off_is_no_traceback(client, caplog):
    for path in ("/sign-in", "/delayed/Sales"):
        with connect(
            client,
            f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 4000\r\n\r\ntoken=",
        ):
            pass
    client.get("/sign-in")

    assert caplog.text == ""


def test_wrong_tokens_are_lines_in_the_log_that_neither_flood_it_nor_show_them(client, monkeypatch, caplog):
    monkeypatch.setattr(refusals, "DELAY_S", 0.01)
    page = client.get("/sign-in").text
    mark = page.partition('name="form_token" value="')[2].partition('"')[0]

    with caplog.at_level(logging.INFO, "rowpost.dashboard"):
        form = client.post("/sign-in", data={"token": "wrong-token-1", "form_token": mark})
        bearers = {
            client.get("/api/v1/queues", headers={"Authorization": f"Bearer wrong-token-{number}"}).status_code
            for number in range(20)
        }
        monkeypatch.setattr(refusals, "LINE_S", 0.0)
        client.get("/", headers={"Authorization": "Bearer wrong-token-2"})

    assert (form.status_code, bearers) == (403, {403})
    assert [record.getMessage() for record in caplog.records if "token" in record.getMessage()] == [
        "a wrong token was refused; it came from 127.0.0.1",
        "a wrong token was refused; it came from 127.0.0.1, and 20 others since the last such line",
    ]
    assert "wrong-token" not in caplog.text


def test_so_many_wrong_tokens_at_once_are_not_delayed_that_the_right_one_waits(client, monkeypatch):
    monkeypatch.setattr(refusals, "DELAY_S", 30.0)
    wrong = "GET /api/v1/queues HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong\r\n\r\n"
    with ExitStack() as stack:
        waiting = [stack.enter_context(connect(client, wrong)) for _ in range(refusals.MOST_DELAYED)]
        eventually(
            lambda: (
                client.get("/api/v1/queues", headers={"Authorization": "Bearer wrong"}, timeout=5).status_code == 429
            ),
            "no more are delayed",
        )
        right = client.get("/api/v1/queues", headers={"Authorization": f"Bearer {TOKEN}"})

    assert (len(waiting), right.status_code) == (refusals.MOST_DELAYED, 200)
