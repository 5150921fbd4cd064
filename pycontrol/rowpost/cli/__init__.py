"""The command line: parse, call, print, nothing else.

app.py has the commands by name, command.py what they share; run.py, deploy.py, queue.py, message.py and demo.py are
one group of commands each.
"""

import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of the program rowpost."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show a name must not end the program
        stream.reconfigure(errors="backslashreplace")
    try:
        from rowpost.cli.app import app

        app(prog_name="rowpost")
    except KeyboardInterrupt:  # while modules were imported: nothing has begun yet
        sys.stderr.write("rowpost: stopped by Ctrl-C: nothing was changed\n")
        raise SystemExit(130) from None
    finally:
        # the embedded server is stopped at exit; half a stop would leave it running
        signal.signal(signal.SIGINT, signal.SIG_IGN)
