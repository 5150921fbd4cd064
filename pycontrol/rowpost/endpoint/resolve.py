"""Resolve the text `module:function` of settings to the function or endpoint that handles messages."""

from __future__ import annotations

import importlib
import sys
import traceback
from functools import reduce
from pathlib import Path
from typing import Any

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import HandlerNotFound
from rowpost.handling.handlers import check_runs
from rowpost.pipeline.plain_handler import Handler

__all__ = ["resolve_handler"]


def resolve_handler(name: str, takes: tuple[str, ...] = ("message", "connection")) -> Handler | Endpoint:
    """Import the module and return the function or the Endpoint. Dots after the colon lead into classes.

    Args:
        name: `module:function`.
        takes: what a function is called with.

    Raises:
        HandlerNotFound: the text has another form, the module or the object does not exist, or the function does not take
            that, or is async or a generator, which is never run. An error that the module raises while it is imported is the cause.

    >>> resolve_handler("operator:eq")(1, 1)
    True
    """
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise HandlerNotFound(f"handler {name!r} is not of the form module:function, such as shop.handlers:place_order")
    module = _import(name, module_name)
    try:
        handler: Any = reduce(getattr, path.split("."), module)
    except AttributeError as error:
        if (hidden := _hidden_file(module_name)) is not None:
            raise HandlerNotFound(f"handler {name!r}: {hidden}") from error
        raise HandlerNotFound(f"handler {name!r}: module {module_name!r} has no {path!r}; is the function's name spelt so?") from error
    if not callable(handler) and not isinstance(handler, Endpoint):
        raise HandlerNotFound(f"handler {name!r} is a {type(handler).__name__}: it must be a function, or an Endpoint with handlers")
    if not isinstance(handler, Endpoint):
        check_runs(handler, HandlerNotFound, f"handler {name!r}", takes=takes)
    found: Handler | Endpoint = handler
    return found


def _hidden_file(module_name: str) -> str | None:
    """Say which file or folder of the current folder is not imported, because Python or an installed package has a module of its name."""
    top = module_name.partition(".")[0]
    try:
        folder = Path.cwd()
    except FileNotFoundError:  # it was removed, so that it hides nothing
        return None
    for path in (folder / f"{top}.py", folder / top / "__init__.py"):
        found = getattr(sys.modules.get(top), "__file__", None)
        if path.is_file() and (found is None or not path.samefile(found)):
            other = "Python's own module" if top in sys.stdlib_module_names else f"the installed module {found}"
            return f"{top!r} is {other}, which is imported in place of {path}. Rename the file or folder, and write its new name in the settings."
    return None


def _import(name: str, module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            hidden = _hidden_file(module_name)
            text = f"handler {name!r}: {hidden or f'no module {missing!r} (install it, or put its folder on PYTHONPATH)'}"
        else:
            text = f"handler {name!r}: module {module_name!r} imports {missing!r}, which is not installed"
        raise HandlerNotFound(text) from error
    except (Exception, SystemExit) as error:
        said = error.msg if isinstance(error, SyntaxError) else error
        raise HandlerNotFound(
            f"handler {name!r}: module {module_name!r} fails while it is imported: {type(error).__name__}: {said}, in {_place_of(error)}"
        ) from error


def _place_of(error: BaseException) -> str:
    """Return the file and line that cannot be read, or the first one outside of Python's own import that failed."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}" + (f": {error.text.strip()}" if error.text else "")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)[1:] if "importlib" not in frame.filename]
    return f"{frames[0].filename}, line {frames[0].lineno}" if frames else "Python itself"
