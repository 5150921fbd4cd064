"""The version of this rowpost, which releases serve its programs, and where it was installed from."""

import re

__all__ = ["__version__", "install_command", "is_served_by"]

__version__ = "0.2.0"


def is_served_by(deployed: str, program: str = __version__) -> bool:
    """Return whether programs of a release may run in a database that another release deployed later.

    A release keeps the procedures of the one before, so that programs can be replaced after the database, one by one.
    Releases are counted by minor versions.

    >>> is_served_by("0.3.1", "0.2.0"), is_served_by("0.4.0", "0.2.0"), is_served_by("1.0.0", "0.2.0")
    (True, False, False)
    """
    (major, minor), (our_major, our_minor) = _release(deployed), _release(program)
    return major == our_major and minor <= our_minor + 1


def _release(version: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (-1, -1)


def install_command(extra: str) -> str:
    """Return the command that installs an extra of rowpost from where this rowpost came: a folder, a file or the
    package index.

    Args:
        extra: the name of the extra, such as "spark".
    """
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        came_from = distribution("rowpost").read_text("direct_url.json")
    except PackageNotFoundError:  # run from a checkout that was never installed
        came_from = None
    if came_from is None:
        return f"pip install 'rowpost[{extra}]'"
    origin = json.loads(came_from)
    if "dir_info" not in origin:
        repository = origin.get("vcs_info", {}).get("vcs")
        return f"pip install 'rowpost[{extra}] @ {f'{repository}+' if repository else ''}{origin['url']}'"
    option = "--editable " if origin["dir_info"].get("editable") else ""
    return f"pip install {option}'{url2pathname(urlsplit(origin['url']).path)}[{extra}]'"
