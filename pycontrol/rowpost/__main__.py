"""`python -m rowpost` is the command `rowpost`."""

import os
import sys

if __name__ == "__main__":
    # Python puts the current folder first. A file there that is named like a module of Python would take that module's place.
    if not sys.flags.safe_path and sys.path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
    from rowpost.cli import main

    main()
