"""The current folder among the places that modules are imported from.

Handlers are imported from it, so `import_from_current_folder` adds it as the last place. PYTHONPATH may have put it
first, often by an empty entry, as `export PYTHONPATH=$PYTHONPATH:/lib` makes one if it was not set. Then a file
`queue.py` there takes the place of Python's own module, which rowpost and its libraries import. `put_behind_python`
prevents that, and imports nothing that such a file could replace.
"""

import os
import sys

__all__ = ["import_from_current_folder", "put_behind_python"]


def import_from_current_folder() -> None:
    """Make modules of the current folder importable.

    Modules of Python and installed ones come first: a file such as `queue.py` must not take the place of one that
    rowpost imports.

    Raises:
        Refused: the folder was removed.
    """
    folder = _current()
    if folder is None:
        from rowpost.cli.exits import Refused

        raise Refused(
            "Handlers are imported from the current folder, and it has been removed. Change to a folder that exists, "
            "and try again."
        )
    if folder not in sys.path:
        sys.path.append(folder)


def put_behind_python() -> None:
    """Let the modules of Python come before those of the current folder, in this process and in those that it starts.

    Installed modules still come after those of a current folder that PYTHONPATH names. Processes that are started find
    it in PYTHONPATH only if it has no file that is named like a module of Python.
    """
    folder = _current()
    if folder is None:
        return
    python = os.path.dirname(os.__file__)
    own = [place for place, entry in enumerate(sys.path) if entry in (python, os.path.join(python, "lib-dynload"))]
    if not own or not any(_is(folder, entry) for entry in sys.path[: own[-1]]):
        return
    first, rest = sys.path[: own[-1] + 1], sys.path[own[-1] + 1 :]
    sys.path[:] = [*(entry for entry in first if not _is(folder, entry)), folder, *rest]
    named = os.environ.get("PYTHONPATH")
    if named is not None and _replaces_python(folder):
        os.environ["PYTHONPATH"] = os.pathsep.join(entry for entry in named.split(os.pathsep) if not _is(folder, entry))


def _current() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None  # the folder was removed


def _is(folder: str, entry: str) -> bool:
    return os.path.realpath(entry or folder) == os.path.realpath(folder)


def _replaces_python(folder: str) -> bool:
    return any(
        os.path.isfile(os.path.join(folder, f"{name}.py")) or os.path.isfile(os.path.join(folder, name, "__init__.py"))
        for name in sys.stdlib_module_names
    )
