"""What protects the pages in a browser: headers of each response, and a token in each form."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["COOKIE", "FIELD", "Forgery", "Headers"]

COOKIE, FIELD = "rowpost_form", "form_token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)


class Headers:
    """ASGI middleware: nothing inline, nothing from elsewhere, in no frame, and stored by nobody."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = POLICY
                headers["X-Content-Type-Options"] = "nosniff"
                headers["X-Frame-Options"] = "DENY"
                headers["Referrer-Policy"] = "no-referrer"
                headers["Cross-Origin-Opener-Policy"] = "same-origin"
                headers["Cross-Origin-Resource-Policy"] = "same-origin"
                headers["Cache-Control"] = "no-store"
            await send(message)

        await self.app(scope, receive, sent if scope["type"] == "http" else send)


class Forgery:
    """The tokens of forms.

    Each browser has a random cookie, and the forms hold a mark of it that only this process can make.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def cookie_of(self, request: Request) -> tuple[str, bool]:
        """Return the browser's cookie, and whether it is new."""
        known = request.cookies.get(COOKIE, "")
        return (known, False) if known else (secrets.token_hex(16), True)

    def token(self, cookie: str) -> str:
        """Return what the forms of a browser hold."""
        return hmac.new(self._secret, cookie.encode(), hashlib.sha256).hexdigest()

    def allows(self, request: Request, form: Mapping[str, str]) -> bool:
        """Return whether a form was sent by a page of this process, and not by a page elsewhere."""
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        cookie = request.cookies.get(COOKIE)
        return bool(cookie) and hmac.compare_digest(form.get(FIELD, "").encode(), self.token(str(cookie)).encode())
