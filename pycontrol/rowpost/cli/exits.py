"""Exit codes: one number per kind of result, the same for every command."""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import NoReturn

from rowpost import errors

__all__ = ["CommandInterrupted", "ExitCode", "Refused", "exit_code", "stop_before_start"]


class ExitCode(IntEnum):
    """The exit codes of the program, each with its `meaning`, which `rowpost --help` shows.

    They do not change between releases.
    """

    meaning: str

    def __new__(cls, value: int, meaning: str) -> ExitCode:
        code = int.__new__(cls, value)
        code._value_, code.meaning = value, meaning
        return code

    OK = 0, "done"
    FINDING = 1, "done, with a finding: verify, queue check and similar commands, and every command with --exit-code"
    USAGE = 2, "an invalid option, argument, name or message"
    SETTINGS = 3, "the environment's file cannot be used"
    UNAVAILABLE = 4, "the database is down or refuses the login, or Spark cannot start"
    PERMISSION = 5, "the login has no permission"
    NOT_FOUND = 6, "the queue, message, archive or handler does not exist, or rowpost is not deployed in the database"
    FAILED = 7, "refused or failed; the open transaction was rolled back"
    BUG = 70, "a bug in rowpost, with a traceback"
    INTERRUPTED = 130, "stopped by Ctrl-C"


_BY_ERROR: dict[ExitCode, tuple[type[Exception], ...]] = {
    ExitCode.SETTINGS: (errors.SettingsError,),
    ExitCode.UNAVAILABLE: (
        errors.DatabaseUnavailable,
        errors.LoginRefused,
        errors.UnsupportedServer,
        errors.SparkUnavailable,
    ),
    ExitCode.PERMISSION: (errors.PermissionDenied,),
    ExitCode.NOT_FOUND: (
        errors.SchemaMissing,
        errors.QueueNotFound,
        errors.SagaNotDeployed,
        errors.ScheduleNotFound,
        errors.HandlerNotFound,
        errors.MessageNotFound,
        errors.OperationNotFound,
        errors.ArchiveNotFound,
    ),
    ExitCode.USAGE: (
        errors.InvalidQueueName,
        errors.InvalidCount,
        errors.InvalidTimeToBeReceived,
        errors.InvalidMessage,
        errors.InvalidMessages,
    ),
}


class CommandInterrupted(Exception):
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
    return next((code for code, kinds in _BY_ERROR.items() if isinstance(error, kinds)), ExitCode.FAILED)


def stop_before_start() -> NoReturn:
    """End the program after Ctrl-C while modules were still being imported: no command has started."""
    sys.stderr.write("rowpost: stopped by Ctrl-C: nothing was changed\n")
    raise SystemExit(ExitCode.INTERRUPTED) from None
