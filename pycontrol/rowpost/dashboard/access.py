"""Who may use the dashboard: whoever reaches it on this machine, who has the token, or whom a proxy names."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import Protocol

from starlette.requests import Request

from rowpost.errors import SettingsError

__all__ = ["LOOPBACK", "Access", "HostAccess", "LoopbackAccess", "ProxyAccess", "TokenAccess"]

LOOPBACK = ("localhost", "127.0.0.1", "::1")
SESSION, SESSION_S = "rowpost_session", 12 * 3600
SHORTEST_TOKEN = 16
#: digits of a time in seconds
LONGEST_TIME = 12


class Access(Protocol):
    """Decides about each request. `signs_in`: whether the page with the token's form is shown to whoever is refused."""

    signs_in: bool

    def user(self, request: Request) -> str | None:
        """Return who asks, for the operation log; None if the request is refused."""


class HostAccess:
    """The application in which the dashboard is mounted decides; `name` tells who asks."""

    signs_in = False

    def __init__(self, name: Callable[[Request], str | None] = lambda request: "application") -> None:
        self._name = name

    def user(self, request: Request) -> str | None:
        return self._name(request)


class LoopbackAccess:
    """Everybody on this machine.

    The name of the host is checked, so that no web page elsewhere gets in by its own DNS.
    """

    signs_in = False

    def user(self, request: Request) -> str | None:
        return "local" if request.url.hostname in LOOPBACK else None


class TokenAccess:
    """Who has the token: in the header Authorization, or in a session that the form began."""

    signs_in = True

    def __init__(self, token: str) -> None:
        """Raise SettingsError if the token is shorter than 16 characters."""
        if len(token) < SHORTEST_TOKEN:
            raise SettingsError(
                f"The dashboard's token has {len(token)} characters. Use at least {SHORTEST_TOKEN}, such as: openssl "
                "rand -hex 32"
            )
        self._token = token.encode()
        self._secret = secrets.token_bytes(32)

    def user(self, request: Request) -> str | None:
        given = self.given(request)
        if given is not None and self.accepts(given):
            return "token"
        ends, _, mark = request.cookies.get(SESSION, "").partition(".")
        valid = (
            ends.isdecimal()
            and len(ends) <= LONGEST_TIME
            and int(ends) > time.time()
            and hmac.compare_digest(mark.encode(), self._mark(ends).encode())
        )
        return "token" if valid else None

    def given(self, request: Request) -> str | None:
        """Return the token in the header Authorization, whether it is right or wrong; None if there is none."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return given.strip() if scheme.lower() == "bearer" else None

    def accepts(self, token: str) -> bool:
        """Return whether this is the token, in a time that does not depend on where it differs."""
        return hmac.compare_digest(token.encode(), self._token)

    def session(self) -> str:
        """Return the cookie of a session of 12 hours, which ends with this process too."""
        ends = str(int(time.time()) + SESSION_S)
        return f"{ends}.{self._mark(ends)}"

    def _mark(self, ends: str) -> str:
        return hmac.new(self._secret, ends.encode() + self._token, hashlib.sha256).hexdigest()


class ProxyAccess:
    """Whom a proxy names in a header.

    Requests from other addresses than the proxy's are refused, as anybody can write a header.
    """

    signs_in = False

    def __init__(self, header: str, proxies: tuple[str, ...]) -> None:
        self._header, self._proxies = header, frozenset(proxies)

    def user(self, request: Request) -> str | None:
        if request.client is None or request.client.host not in self._proxies:
            return None
        return request.headers.get(self._header) or None
