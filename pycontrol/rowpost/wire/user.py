"""Name the user of this process, as records and reports name it."""

import getpass
import os

__all__ = ["user_name"]


def user_name() -> str:
    """Return the user's name; the number of a user id that has none, as in many containers, or an empty text."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid()) if hasattr(os, "getuid") else ""
