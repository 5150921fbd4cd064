"""The version of this rowpost, and where it was installed from."""

__all__ = ["__version__", "install_command"]

__version__ = "0.1.0"


def install_command(extra: str) -> str:
    """Return the command that installs an extra of rowpost from where this rowpost came: a folder, a file or the package index.

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
