"""Resolve the text `module:function` of settings to the endpoint that handles messages.

A plain function becomes an endpoint here (`endpoint.function`). Nothing behind this place asks which of the two a
handler was.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.function import FunctionEndpoint
from rowpost.errors import HandlerNotFound, SettingsError
from rowpost.handling.handlers import check_runs
from rowpost.settings.worker import RETRIES, FunctionRetries

__all__ = ["resolve_endpoint", "resolve_function", "resolve_handler"]


def resolve_handler(
    name: str, queue: str, *, retries: FunctionRetries | None = None, error_queue: str = "error"
) -> Endpoint:
    """Import a module and return the endpoint that a name leads to. A plain function is wrapped in one.

    Args:
        name: `module:function` or `module:endpoint`. Dots after the colon lead into classes.
        queue: the queue whose messages are handled, for a function.
        retries: what the settings of the queue's worker say about retries of a function; None if nothing.
        error_queue: where messages of a function go that cannot be handled.

    Raises:
        HandlerNotFound: the text has another form, the module or the object does not exist, or the function does not
            take a message and a connection, or is a generator, which is never run. An error that the module raises
            while it is imported is the cause.
        SettingsError: the name leads to an endpoint, which decides itself how often a message is tried, and `retries`
            are given.
    """
    found = _find(name)
    if not isinstance(found, Endpoint):
        function = _checked(found, name, ("message", "connection"), may_be_async=True)
        return FunctionEndpoint(function, queue, retries=retries, error_queue=error_queue)
    if retries is not None:
        raise SettingsError(
            f"{', '.join(RETRIES)} below queues.{queue}.worker would be ignored, because {name} is an Endpoint, which "
            "decides itself how often and when a message is tried. Remove these keys. For the same retries, give the "
            f"Endpoint recoverability=Recoverability(immediate_retries={retries.attempts - 1}, "
            f"delayed_retries={retries.delayed_retries})."
        )
    return found


def resolve_endpoint(name: str) -> Endpoint:
    """Return the Endpoint that `module:endpoint` leads to.

    Raises HandlerNotFound as `resolve_handler`, and for a plain function.
    """
    found = _find(name)
    if not isinstance(found, Endpoint):
        raise HandlerNotFound(
            f"{name} cannot be run: it is a {type(found).__name__}, not an Endpoint. To run a plain function, name it "
            "in an "
            "environment's file: worker: {handler: …} under its queue."
        )
    return found


def resolve_function(name: str, takes: tuple[str, ...]) -> Callable[..., Any]:
    """Return the plain function that `module:function` leads to.

    Args:
        name: `module:function`. Dots after the colon lead into classes.
        takes: what the function is called with.

    Raises:
        HandlerNotFound: as `resolve_handler`, and for an Endpoint.

    >>> resolve_function("operator:eq", ("a", "b"))(1, 1)
    True
    """
    found = _find(name)
    if isinstance(found, Endpoint):
        raise HandlerNotFound(
            f"{name!r} is an Endpoint. Name a function of ({', '.join(takes)}) that returns a value, or a message's "
            "header."
        )
    return _checked(found, name, takes)


def _checked(found: Any, name: str, takes: tuple[str, ...], *, may_be_async: bool = False) -> Callable[..., Any]:
    """Return what a name leads to if it can be called so. Raises HandlerNotFound."""
    if not callable(found):
        raise HandlerNotFound(
            f"handler {name!r} is a {type(found).__name__}: it must be a function, or an Endpoint with handlers"
        )
    check_runs(found, HandlerNotFound, f"handler {name!r}", takes=takes, may_be_async=may_be_async)
    function: Callable[..., Any] = found
    return function


def _find(name: str) -> Any:
    """Import the module of a name and return the object that the name leads to. Raises HandlerNotFound."""
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise HandlerNotFound(f"handler {name!r} is not of the form module:function, such as shop.handlers:place_order")
    module = _import(name, module_name)
    try:
        return reduce(getattr, path.split("."), module)
    except AttributeError as error:
        if (hidden := _hidden_file(module_name)) is not None:
            raise HandlerNotFound(f"handler {name!r}: {hidden}") from error
        raise HandlerNotFound(
            f"handler {name!r}: module {module_name!r} has no {path!r}; is the function's name spelt so?"
        ) from error


def _hidden_file(module_name: str) -> str | None:
    """Say which file or folder of the current folder is not imported, because Python or an installed package has a
    module of its name.
    """
    top = module_name.partition(".")[0]
    try:
        folder = Path.cwd()
    except FileNotFoundError:  # it was removed, so that it hides nothing
        return None
    for path in (folder / f"{top}.py", folder / top / "__init__.py"):
        found = getattr(sys.modules.get(top), "__file__", None)
        if path.is_file() and (found is None or not path.samefile(found)):
            other = "Python's own module" if top in sys.stdlib_module_names else f"the installed module {found}"
            return (
                f"{top!r} is {other}, which is imported in place of {path}. Rename the file or folder, and write its "
                "new name in the settings."
            )
    return None


def _import(name: str, module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            hidden = _hidden_file(module_name)
            text = (
                f"handler {name!r}: {hidden or f'no module {missing!r} (install it, or put its folder on PYTHONPATH)'}"
            )
        else:
            text = f"handler {name!r}: module {module_name!r} imports {missing!r}, which is not installed"
        raise HandlerNotFound(text) from error
    except (Exception, SystemExit) as error:
        said = error.msg if isinstance(error, SyntaxError) else error
        raise HandlerNotFound(
            f"handler {name!r}: module {module_name!r} fails while it is imported: {type(error).__name__}: {said}, in "
            f"{_place_of(error)}"
        ) from error


def _place_of(error: BaseException) -> str:
    """Return the file and line that cannot be read, or the first one outside of Python's own import that failed."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}" + (f": {error.text.strip()}" if error.text else "")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)[1:] if "importlib" not in frame.filename]
    return f"{frames[0].filename}, line {frames[0].lineno}" if frames else "Python itself"
