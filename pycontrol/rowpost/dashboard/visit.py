"""One request and what all requests share: arguments, rights, pages, notices and problems."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from rowpost import errors
from rowpost.dashboard.access import Access
from rowpost.dashboard.connections import Pool, Rights
from rowpost.dashboard.monitor import Monitor
from rowpost.dashboard.operator import CLIENT, VisitingOperator
from rowpost.dashboard.protection import FIELD, Forgery
from rowpost.dashboard.refusals import Refusals
from rowpost.dashboard.rendering import ENVIRONMENT
from rowpost.dashboard.runner import Runner
from rowpost.operations.documents import Problem
from rowpost.operations.operation import Operation, Result
from rowpost.operations.rights import Right
from rowpost.settings.environment import Settings
from rowpost.version import __version__

__all__ = ["Handler", "Site", "Visit"]

NOTICES = 256
_R = TypeVar("_R", bound=Result)


@dataclass
class Site:
    """What all requests share."""

    settings: Settings
    read_only: bool
    access: Access
    pool: Pool
    monitor: Monitor
    runner: Runner
    forgery: Forgery = field(default_factory=Forgery)
    refusals: Refusals = field(default_factory=Refusals)
    notices: OrderedDict[str, str] = field(default_factory=OrderedDict)

    def close(self) -> None:
        """Stop the operations that go on, stop measuring, and close the connections."""
        self.runner.close()
        self.monitor.stop()
        self.pool.close()


@dataclass
class Visit:
    """One request, with who asks."""

    site: Site
    request: Request
    user: str
    form: dict[str, str]
    cookie: str

    @property
    def base(self) -> str:
        """The path at which the dashboard is mounted."""
        return str(self.request.scope.get("root_path", "")).rstrip("/")

    @property
    def address(self) -> str:
        """The address from which the request came."""
        return self.request.client.host if self.request.client else "an unknown address"

    @property
    def error_queue(self) -> str:
        """The error queue that the address names, else the environment's."""
        return self.argument("queue") or self.site.settings.supervisor.error_queue

    def argument(self, name: str) -> str:
        """Return a value of the form or of the address without blanks around it; empty if it is missing."""
        return (self.form.get(name) or self.request.query_params.get(name) or "").strip()

    def number(self, name: str) -> int | None:
        """Return a whole number of the address; None if it is missing. Raises InvalidCount."""
        text = self.argument(name)
        if text and not (text.isascii() and text.isdigit() and len(text) < 19):  # noqa: PLR2004 -- digits of a bigint
            raise errors.InvalidCount(f"{name} must be a whole number (got {text[:40]!r}).")
        return int(text) if text else None

    def rights(self) -> Rights:
        """Return the rights of the dashboard's login."""
        return self.site.pool.rights()

    def may(self, right: Right, queue: str = "") -> bool:
        """Return whether an operation is offered: the server allows it, and the dashboard does not only read."""
        return not self.site.read_only and self.rights().may(right, queue)

    def operator(self) -> VisitingOperator:
        """Return who acts. Raises PermissionDenied if the dashboard only reads."""
        if self.site.read_only:
            raise errors.PermissionDenied("This dashboard was started with --read-only: nothing was changed.")
        return VisitingOperator(CLIENT, self.user)

    def execute(self, operation: Operation[_R]) -> _R:
        """Execute and log an operation of this visitor. Raises PermissionDenied, and what the operation raises."""
        with self.site.pool.connection() as database:
            return operation.execute(database, self.operator())

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Render a template."""
        values |= {
            "base": self.base,
            "visit": self,
            "settings": self.site.settings,
            "version": __version__,
            "read_only": self.site.read_only,
            "form_field": FIELD,
            "form_token": self.site.forgery.token(self.cookie),
            "notice": self.site.notices.pop(self.request.query_params.get("notice", ""), None),
        }
        text = ENVIRONMENT.get_template(template).render(values)
        return Response(text, status, media_type="text/html")

    def back(self, path: str, notice: str, **arguments: Any) -> Response:
        """Send the browser to a page, which shows the notice once."""
        self.site.monitor.expire()
        key = secrets.token_hex(8)
        self.site.notices[key] = notice
        while len(self.site.notices) > NOTICES:
            self.site.notices.popitem(last=False)
        return RedirectResponse(f"{self.base}{path}?{urlencode({**arguments, 'notice': key})}", 303)

    def problem(self, text: str, status: int, kind: str = "") -> Response:
        """Return an error: a page, or a document if JSON was asked for."""
        if self.request.url.path.startswith(f"{self.base}/api/"):
            return Response(msgspec.json.encode(Problem(text, kind)), status, media_type="application/json")
        return self.page("error.html", status, text=text, code=status)


Handler = Callable[[Visit], Response]
