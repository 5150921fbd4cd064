"""The command line `rowpost`: parses arguments, calls the library and prints results.

app.py registers the commands by name. command.py holds what all commands share: --env, --json, exit codes and the
conversion of errors into messages. Every group of commands has one module or package: run, message (send, receive),
deploy (plan, apply, verify, version), queue, errors, subscriptions, sagas, transactions, outbox, spark, doctor and
demo.
"""

import io
import signal
import sys

from rowpost.cli import hangups
from rowpost.cli.current_folder import put_behind_python

__all__ = ["main"]


def main() -> None:
    """Run the program rowpost."""
    put_behind_python()
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot display a name must not end the program
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if hangups.is_run(sys.argv[1:]):
        hangups.remember()
    try:
        from rowpost.cli.app import app

        app(prog_name="rowpost")
    except KeyboardInterrupt:
        from rowpost.cli.exits import stop_before_start

        stop_before_start()
    finally:
        # the embedded server is stopped at exit; an interrupted stop would leave it running
        signal.signal(signal.SIGINT, signal.SIG_IGN)
