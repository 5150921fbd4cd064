"""How the program ends: one number per kind of ending, the same for every command."""

from __future__ import annotations

from enum import IntEnum

from rowpost import errors

__all__ = ["EXIT_CODES", "ExitCode", "Interrupted", "Refused", "exit_code"]


class ExitCode(IntEnum):
    """What a script can rely on."""

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
    ExitCode.FINDING: "done, with a finding: of verify, of queue check, or where --exit-code asked",
    ExitCode.USAGE: "a wrong option, argument, name or message",
    ExitCode.SETTINGS: "the environment's file cannot be used",
    ExitCode.UNAVAILABLE: "the database is down, or refuses the login; or Spark cannot run here",
    ExitCode.PERMISSION: "the login lacks a right",
    ExitCode.NOT_FOUND: "no such queue, message, archive or handler, or rowpost is not deployed there",
    ExitCode.FAILED: "refused or failed; what was begun was rolled back",
    ExitCode.BUG: "a mistake in rowpost itself, with a traceback",
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
    (errors.ArchiveNotFound, ExitCode.NOT_FOUND),
    (errors.InvalidQueueName, ExitCode.USAGE),
    (errors.InvalidCount, ExitCode.USAGE),
    (errors.InvalidTimeToBeReceived, ExitCode.USAGE),
    (errors.InvalidMessage, ExitCode.USAGE),
    (errors.InvalidMessages, ExitCode.USAGE),
)


class Interrupted(Exception):
    """Ctrl-C, with words on what was done before it."""


class Refused(errors.RowpostError):
    """The command will not do this without being told more; `code` says how the program ends."""

    def __init__(self, text: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(text)
        self.code = code


def exit_code(error: errors.RowpostError) -> ExitCode:
    """The number for an error.

    >>> exit_code(errors.QueueNotFound("no queue")), exit_code(errors.DeployError("no"))
    (<ExitCode.NOT_FOUND: 6>, <ExitCode.FAILED: 7>)
    """
    if isinstance(error, Refused):
        return error.code
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), ExitCode.FAILED)
