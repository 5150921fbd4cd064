"""A dashboard that answers on a port of this machine, in a thread, and a browser's forms for it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from uuid import uuid4

import httpx
from starlette.types import ASGIApp

from rowpost.dashboard.server import listen, make_server
from tests.support.workers import eventually

__all__ = ["Browser", "failed_headers", "serving"]


class Browser(httpx.Client):
    """Keeps cookies, follows no redirects by itself, and fills forms of pages."""

    def submit(self, page: str, action: str, **fields: str) -> httpx.Response:
        """Load a page, and send the form that leads to the action with the token of the page."""
        token = re.search(r'name="form_token" value="(\w+)"', self.get(page).text)
        assert token, f"{page} has no form"
        return self.post(action, data={"form_token": token[1], **fields})

    def text(self, page: str) -> str:
        """Return the page without its tags."""
        answer = self.get(page)
        assert answer.status_code == 200, answer.text
        return unescape(re.sub(r"<[^>]+>", " ", answer.text))


@contextmanager
def serving(app: ASGIApp) -> Iterator[Browser]:
    """Serve an application until the block ends, and yield a client for it."""
    with listen("127.0.0.1", 0) as opened:
        server = make_server(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
        thread.start()
        try:
            eventually(lambda: server.started, "the dashboard answers")
            with Browser(base_url=f"http://127.0.0.1:{opened.getsockname()[1]}", timeout=30) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join(20)


def failed_headers(
    text: str = "no such order",
    queue: str = "Sales",
    error: str = "builtins.ValueError",
    kind: str = "Shop.Messages.PlaceOrder",
) -> dict:
    """The headers of a failed message."""
    return {
        "NServiceBus.MessageId": str(uuid4()),
        "NServiceBus.EnclosedMessageTypes": f"{kind}, Shop.Messages, Version=1.0.0.0",
        "NServiceBus.ProcessingEndpoint": "Sales",
        "NServiceBus.FailedQ": queue,
        "NServiceBus.TimeSent": "2026-04-29 21:56:55:590807 Z",
        "NServiceBus.TimeOfFailure": "2026-04-29 21:58:00:406166 Z",
        "NServiceBus.ExceptionInfo.ExceptionType": error,
        "NServiceBus.ExceptionInfo.Message": text,
        "NServiceBus.ExceptionInfo.StackTrace": "Traceback (most recent call last):\n  in place_order",
    }
