"""Read what a program serves over HTTP."""

import socket
import urllib.request
from contextlib import suppress

__all__ = ["free_port", "read"]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def read(url: str) -> str:
    """Return a page; an empty text if it cannot be read."""
    with suppress(OSError), urllib.request.urlopen(url, timeout=5) as page:
        return page.read().decode()
    return ""
