"""rowpost run --reload: start the same command again when a file has changed."""

from __future__ import annotations

import os
import shlex
import sys
from math import ceil
from pathlib import Path

from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.session import PRODUCTION, Session
from rowpost.version import install_command

__all__ = ["run_and_reload"]

OPTION = "--reload"
#: for a process that does not end on SIGKILL at once
GRACE_S = 5
#: names of files in a line
SHOWN = 3
#: a group of its own, so that a terminal's Ctrl-C reaches this program alone, which passes it on once
_IN_A_GROUP = (
    "import os, runpy; hasattr(os, 'setpgid') and os.setpgid(0, 0); runpy.run_module('rowpost', None, '__main__')"
)


def run_and_reload(session: Session) -> None:
    """Run the command without this option in a process of its own, and start it again after each change.

    Running handlers finish first, for at most the environment's `stop_timeout`.

    Raises:
        Refused: the environment is named production, or the package watchfiles is missing.
    """
    if session.settings.environment == PRODUCTION:
        raise Refused("run --reload is for development. In production, restart the service.", ExitCode.USAGE)
    try:
        from watchfiles import DefaultFilter, run_process
    except ImportError:
        raise Refused(
            f"run --reload needs the package watchfiles, which is not installed: {install_command('reload')}",
            ExitCode.USAGE,
        ) from None

    class Sources(DefaultFilter):
        """Python files, and files of environments."""

        def __call__(self, change: object, path: str) -> bool:
            return path.endswith((".py", ".yml", ".yaml")) and super().__call__(change, path)  # type: ignore[arg-type]

    own = [each for each in sys.argv[1:] if each != OPTION]
    command = shlex.join([sys.executable, "-c", _IN_A_GROUP, *own])
    session.note(f"Watching {Path.cwd()}. Ctrl-C stops.")
    run_process(
        os.curdir,
        target=command,
        target_type="command",
        watch_filter=Sources(),
        callback=lambda changes: session.note(f"{_named(path for _, path in changes)} changed: starting again."),
        sigint_timeout=ceil(session.settings.supervisor.stop_timeout),
        sigkill_timeout=GRACE_S,
    )


def _named(paths: object) -> str:
    names = sorted({os.path.relpath(str(path)) for path in paths})  # type: ignore[attr-defined]
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
