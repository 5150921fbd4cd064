"""What every command shares.

`command` registers a function as a command that accepts --env and --json before or after its name. It converts the
function's result or exception into a message on stderr and an exit code. Only a bug in rowpost prints a traceback.

Options that several commands have are the fields of a dataclass, of which such a command receives one value:

@dataclass(frozen=True)
class Limits:
    rows: Annotated[int, typer.Option("--rows", help="…")] = 10

def show(session: Session, queue: QueueArgument, limits: Limits) -> None: ...

command(app)(show)
"""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from dataclasses import is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from rowpost.cli.completion import environment_names, queue_names
from rowpost.cli.exits import CommandInterrupted, ExitCode, exit_code
from rowpost.cli.printing import visible
from rowpost.cli.session import Session
from rowpost.errors import RowpostError

__all__ = ["AllQueuesArgument", "Command", "EnvironmentOption", "JsonOption", "QueueArgument", "YesOption", "command"]

#: what a command does: the first argument is the Session
Command = Callable[..., ExitCode | int | None]

EnvironmentOption = Annotated[
    str | None,
    typer.Option(
        "--env",
        metavar="NAME|PATH",
        help=(
            "The environment: the name of a file in deploy/environments, or a path. Default: $ROWPOST_ENV, else local."
        ),
        show_default=False,
        autocompletion=environment_names,
    ),
]
QueueArgument = Annotated[
    str, typer.Argument(metavar="QUEUE", help="A queue's name or address.", autocompletion=queue_names)
]
AllQueuesArgument = Annotated[
    str | None, typer.Argument(metavar="QUEUE", help="A queue. Default: all.", autocompletion=queue_names)
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")]


def command(app: typer.Typer, name: str | None = None) -> Callable[[Command], Command]:
    """Register a function as a command of `app`. The function receives a Session first and returns the exit code."""

    def register(function: Command) -> Command:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        groups = {each.name: each.annotation for each in own if is_dataclass(each.annotation)}
        options = [each for given in own for each in (_fields(given.annotation) if given.name in groups else [given])]
        keyword = inspect.Parameter.KEYWORD_ONLY
        shared = [
            inspect.Parameter("ctx", keyword, annotation=typer.Context),
            inspect.Parameter("env", keyword, annotation=EnvironmentOption, default=None),
            inspect.Parameter("as_json", keyword, annotation=JsonOption, default=False),
        ]

        def run(**values: Any) -> None:
            top = values.pop("ctx").find_root().params
            env = values.pop("env") or top.get("env")
            session = Session(env, values.pop("as_json") or top.get("as_json", False))
            raise typer.Exit(_run_to_exit_code(session, function, groups, values))

        parameters = [parameter.replace(kind=keyword) for parameter in options] + shared
        vars(run)["__signature__"] = inspect.Signature(
            parameters
        )  # an attribute that inspect reads and type checkers do not have
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__doc__, run.__name__ = function.__doc__, function.__name__
        app.command(name)(run)
        return function

    return register


def _fields(group: Any) -> list[inspect.Parameter]:
    """Return the fields of a dataclass as parameters, with types that each module of its classes can name."""
    types = get_type_hints(group, include_extras=True)
    return [each.replace(annotation=types[each.name]) for each in inspect.signature(group).parameters.values()]


def _run_to_exit_code(session: Session, function: Command, groups: dict[str, Any], values: dict[str, Any]) -> int:
    """Run a command. Convert its result or exception into a message on stderr and an exit code."""
    try:
        for name, group in groups.items():  # a group may refuse its values
            values[name] = group(**{each.name: values.pop(each.name) for each in _fields(group)})
        # with --json, what a user's module prints while it is imported must not come between the documents
        with redirect_stdout(sys.stderr) if session.as_json else nullcontext():
            return int(function(session, **values) or ExitCode.OK)
    except (typer.Exit, typer.BadParameter):
        raise
    except BrokenPipeError:
        # the reader closed the pipe; flushing at exit would raise the same error again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 -- every error becomes an exit code
        text, code = _message_and_code(error)
        session.note(f"rowpost: {visible(' '.join(text.split()))}")
        return code


def _message_and_code(error: BaseException) -> tuple[str, ExitCode]:
    """Return the message and the exit code for an error. An unexpected error is a bug: print its traceback."""
    match error:
        case RowpostError():
            result = str(error), exit_code(error)
        case CommandInterrupted():
            result = f"stopped by Ctrl-C: {error}", ExitCode.INTERRUPTED
        case KeyboardInterrupt() | typer.Abort():
            result = "stopped by Ctrl-C: nothing was changed", ExitCode.INTERRUPTED
        case OSError():
            result = (
                f"{error.strerror or error}{'' if error.filename is None else f': {error.filename}'}",
                ExitCode.FAILED,
            )
        case _:
            traceback.print_exception(error)
            result = "this is a bug in rowpost: please report it with the lines above", ExitCode.BUG
    return result
