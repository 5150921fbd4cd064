"""Exit codes: one number per kind of result, the same for every command."""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import NoReturn

from rowpost import errors

__all__ = ["EXIT_CODES", "ExitCode", "Interrupted", "Refused", "exit_code", "stop_before_start"]


class ExitCode(IntEnum):
    """The exit codes of the program. They do not change between releases."""

    OK = 0
    FINDING = 1
    USAGE = 2
    SETTINGS = 3
    UNAVAILABLE = 4
    PERMISSION = 5
    NOT_FOUND = 6
    FAILED = 7
    BUG = 70
    INTERRUPTED = 130


#: shown in `rowpost --help`
EXIT_CODES = {
    ExitCode.OK: "done",
    ExitCode.FINDING: "done, with a finding: verify, queue check and similar commands, and every command with --exit-code",
    ExitCode.USAGE: "an invalid option, argument, name or message",
    ExitCode.SETTINGS: "the environment's file cannot be used",
    ExitCode.UNAVAILABLE: "the database is down or refuses the login, or Spark cannot start",
    ExitCode.PERMISSION: "the login has no permission",
    ExitCode.NOT_FOUND: "the queue, message, archive or handler does not exist, or rowpost is not deployed in the database",
    ExitCode.FAILED: "refused or failed; the open transaction was rolled back",
    ExitCode.BUG: "a bug in rowpost, with a traceback",
    ExitCode.INTERRUPTED: "stopped by Ctrl-C",
}

_BY_ERROR: tuple[tuple[type[Exception], ExitCode], ...] = (
    (errors.SettingsError, ExitCode.SETTINGS),
    (errors.DatabaseUnavailable, ExitCode.UNAVAILABLE),
    (errors.LoginRefused, ExitCode.UNAVAILABLE),
    (errors.UnsupportedServer, ExitCode.UNAVAILABLE),
    (errors.SparkUnavailable, ExitCode.UNAVAILABLE),
    (errors.PermissionDenied, ExitCode.PERMISSION),
    (errors.SchemaMissing, ExitCode.NOT_FOUND),
    (errors.QueueNotFound, ExitCode.NOT_FOUND),
    (errors.SagaNotDeployed, ExitCode.NOT_FOUND),
    (errors.HandlerNotFound, ExitCode.NOT_FOUND),
    (errors.MessageNotFound, ExitCode.NOT_FOUND),
    (errors.OperationNotFound, ExitCode.NOT_FOUND),
    (errors.ArchiveNotFound, ExitCode.NOT_FOUND),
    (errors.InvalidQueueName, ExitCode.USAGE),
    (errors.InvalidCount, ExitCode.USAGE),
    (errors.InvalidTimeToBeReceived, ExitCode.USAGE),
    (errors.InvalidMessage, ExitCode.USAGE),
    (errors.InvalidMessages, ExitCode.USAGE),
)


class Interrupted(Exception):
    """Ctrl-C was pressed. The text says what had been done until then."""


class Refused(errors.RowpostError):
    """The command refuses the arguments or needs more of them. `code` is the exit code."""

    def __init__(self, text: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(text)
        self.code = code


def exit_code(error: errors.RowpostError) -> ExitCode:
    """Return the exit code for an error.

    >>> exit_code(errors.QueueNotFound("no queue")), exit_code(errors.DeployError("no"))
    (<ExitCode.NOT_FOUND: 6>, <ExitCode.FAILED: 7>)
    """
    if isinstance(error, Refused):
        return error.code
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), ExitCode.FAILED)


def stop_before_start() -> NoReturn:
    """End the program after Ctrl-C while modules were still being imported: no command has started."""
    sys.stderr.write("rowpost: stopped by Ctrl-C: nothing was changed\n")
    raise SystemExit(ExitCode.INTERRUPTED) from None
