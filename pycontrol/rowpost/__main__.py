"""`python -m rowpost` is the command `rowpost`."""

import os
import sys

if __name__ == "__main__":
    try:
        current = os.getcwd()
    except FileNotFoundError:  # the folder was removed
        current = ""
    # Python puts the current folder first. A file there that is named like a module of Python would take that module's
    # place.
    if not sys.flags.safe_path and sys.path and sys.path[0] in ("", current):
        del sys.path[0]
    from rowpost.cli import main

    main()
