"""The ASGI application: which request is answered by whom, and what becomes of errors."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from rowpost import errors
from rowpost.dashboard.access import SESSION, SESSION_S, Access, HostAccess, TokenAccess
from rowpost.dashboard.api import POSTS as API_POSTS
from rowpost.dashboard.api import ROUTES as API
from rowpost.dashboard.bulk import FORMS as OPERATION_FORMS
from rowpost.dashboard.bulk import PAGES as OPERATION_PAGES
from rowpost.dashboard.connections import Pool
from rowpost.dashboard.forms import ROUTES as FORMS
from rowpost.dashboard.monitor import Monitor
from rowpost.dashboard.pages import ROUTES as PAGES
from rowpost.dashboard.protection import COOKIE, Headers
from rowpost.dashboard.rendering import ASSETS
from rowpost.dashboard.runner import Runner, TooManyOperations
from rowpost.dashboard.visit import Handler, Site, Visit
from rowpost.settings.environment import Settings, load_settings

__all__ = ["app"]

#: bytes of a form, and of the one with the token, which everybody can send
LARGEST_FORM, LARGEST_SIGN_IN = 32 * 1024 * 1024, 4096
_log = logging.getLogger("rowpost.dashboard")
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (errors.PermissionDenied, 403),
    (errors.QueueNotFound, 404),
    (errors.MessageNotFound, 404),
    (errors.OperationNotFound, 404),
    (errors.OperationTaken, 409),
    (TooManyOperations, 503),
    (errors.ScheduleNotFound, 404),
    (errors.SagaNotDeployed, 404),
    (errors.SagaInstanceMissing, 404),
    (errors.DatabaseUnavailable, 503),
    (errors.LoginRefused, 503),
    (errors.SchemaMissing, 503),
    (errors.UnsupportedServer, 503),
    (errors.SchemaTooNew, 503),
    (errors.Deadlock, 503),
    (errors.MessageError, 400),
    (errors.CatalogueError, 400),
)


def app(
    environment: str | Path | Settings | None = None, *, read_only: bool = False, access: Access | None = None
) -> Starlette:
    """Return the dashboard of an environment as an ASGI application, which can be mounted in another one.

    Args:
        environment: its name, the path of its file, or its settings; None as for every command.
        read_only: offer no operation, and refuse all.
        access: who may use it. By default everybody who reaches it: the application in which it is mounted decides.

    Raises:
        SettingsError: the environment cannot be read.
    """
    settings = environment if isinstance(environment, Settings) else load_settings(environment)
    pool = Pool(settings)
    site = Site(settings, read_only, access or HostAccess(), pool, Monitor(pool), Runner(settings))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        site.monitor.start()
        try:
            yield
        finally:
            await run_in_threadpool(site.close)

    routes = [
        Route(path, _endpoint(site, handler), methods=["GET"]) for path, handler in (*OPERATION_PAGES, *PAGES, *API)
    ]
    routes += [
        Route(path, _endpoint(site, handler), methods=["POST"])
        for path, handler in (*FORMS, *OPERATION_FORMS, *API_POSTS)
    ]
    routes += [Route("/static/{name}", _static), Route("/sign-in", _sign_in(site), methods=["GET", "POST"])]
    routes += [Route("/{path:path}", _endpoint(site, _nothing))]
    made = Starlette(routes=routes, middleware=[Middleware(Headers)], lifespan=lifespan)
    made.state.site = site
    return made


def _nothing(visit: Visit) -> Response:
    return visit.problem("There is no such page.", 404)


async def _static(request: Request) -> Response:
    content, kind = ASSETS.get(request.path_params["name"], (None, ""))
    return Response("There is no such file.", 404) if content is None else Response(content, media_type=kind)


def _endpoint(site: Site, handler: Handler) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        cookie, new = site.forgery.cookie_of(request)
        visit = Visit(site, request, site.access.user(request) or "", {}, cookie)
        response = await _refused(visit) or await _form_problem(visit)
        if response is None:
            site.monitor.start()  # a mounted application gets no lifespan
            response = await run_in_threadpool(_answer, visit, handler)
        if new and request.method == "GET":
            _set_cookie(response, request, COOKIE, cookie)
        return response

    return answer


async def _refused(visit: Visit) -> Response | None:
    if visit.user:
        return None
    if isinstance(visit.site.access, TokenAccess) and visit.site.access.given(visit.request) is not None:
        delayed = await visit.site.refusals.refuse(visit.address)
        return visit.problem("The token is wrong.", 403 if delayed else 429)
    if visit.site.access.signs_in and not visit.request.url.path.startswith(f"{visit.base}/api/"):
        return RedirectResponse(f"{visit.base}/sign-in", 303)
    return visit.problem(
        "You may not use this dashboard from here: sign in, or use the address that its operator named.", 403
    )


async def _form_problem(visit: Visit, largest: int = LARGEST_FORM) -> Response | None:
    """Read the form of a POST; return a response if it is refused."""
    if visit.request.method != "POST":
        return None
    body = await _body(visit, largest)
    if isinstance(body, Response):
        return body
    if visit.request.url.path.startswith(f"{visit.base}/api/"):
        return _json_problem(visit, body)
    try:
        visit.form.update(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=50))
    except ValueError:
        return visit.problem("The form cannot be read.", 400)
    if not visit.site.forgery.allows(visit.request, visit.form):
        return visit.problem(
            "The form is too old, or was not sent by this dashboard: nothing was changed. Go back, load the page again "
            "and repeat it.",
            403,
        )
    return None


async def _body(visit: Visit, largest: int) -> bytes | Response:
    body = bytearray()
    try:
        async for part in visit.request.stream():
            body += part
            if len(body) > largest:
                return visit.problem(
                    f"The form is larger than {largest:,} bytes. To edit a large message, run: rowpost errors edit", 413
                )
    except ClientDisconnect:  # nobody reads the answer
        return visit.problem("The request ended early.", 400)
    return bytes(body)


def _json_problem(visit: Visit, body: bytes) -> Response | None:
    """Read the object of a POST to the interface; return a response if it is refused.

    A browser sends JSON to another site only after that site has agreed, which this one never does. So no form token is
    needed.
    """
    if visit.request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return visit.problem("Send a JSON object, with the header Content-Type: application/json.", 415)
    if visit.request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return visit.problem("The request comes from a page of another site: nothing was changed.", 403)
    try:
        given = msgspec.json.decode(body, type=dict[str, str | int | None])
    except msgspec.DecodeError as error:
        return visit.problem(f"The JSON object cannot be read: {error}", 400)
    visit.form.update({name: str(value) for name, value in given.items() if value is not None})
    return None


def _answer(visit: Visit, handler: Handler) -> Response:
    """Answer in a thread. Errors become pages in plain words."""
    began = time.monotonic()
    try:
        return handler(visit)
    except errors.RowpostError as error:
        status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
        limit_s = visit.site.pool.statement_ms / 1000
        text = str(error)
        if status == 500 and time.monotonic() - began >= limit_s:  # noqa: PLR2004
            status, text = (
                504,
                f"The database did not answer within {limit_s:g} s, and the statement was cancelled: {error}",
            )
        return visit.problem(text, status, type(error).__name__)
    except Exception:  # noqa: BLE001 -- a bug becomes a page, and a traceback in the log
        _log.exception("a page failed: %s", visit.request.url.path)
        return visit.problem("This is a bug in rowpost: please report it with the lines in the dashboard's log.", 500)


def _set_cookie(response: Response, request: Request, name: str, value: str, max_age: int | None = None) -> None:
    path = request.scope.get("root_path", "") or "/"
    response.set_cookie(
        name, value, max_age=max_age, path=path, httponly=True, samesite="strict", secure=request.url.scheme == "https"
    )


def _sign_in(site: Site) -> Callable[[Request], Any]:
    async def sign_in(request: Request) -> Response:
        cookie, new = site.forgery.cookie_of(request)
        visit = Visit(site, request, "", {}, cookie)
        if not isinstance(site.access, TokenAccess):
            return visit.problem("This dashboard needs no token.", 404)
        wrong = False
        if request.method == "POST":
            refused = await _form_problem(visit, LARGEST_SIGN_IN)
            if refused is not None:
                return refused
            if site.access.accepts(visit.argument("token")):
                response: Response = RedirectResponse(f"{visit.base}/", 303)
                _set_cookie(response, request, SESSION, site.access.session(), SESSION_S)
                return response
            if not await site.refusals.refuse(visit.address):
                return visit.problem("Too many wrong tokens were given in the last second: try again.", 429)
            wrong = True
        response = visit.page("sign_in.html", 403 if wrong else 200, wrong=wrong)
        if new:
            _set_cookie(response, request, COOKIE, cookie)
        return response

    return sign_in
