"""What every command shares: --env and --json before or after its name, one way to end, no traceback for a mistake."""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Callable
from typing import Annotated, Any

import typer

from rowpost.cli.completion import environment_names, queue_names
from rowpost.cli.exits import ExitCode, Interrupted, exit_code
from rowpost.cli.printing import visible
from rowpost.cli.session import Session
from rowpost.errors import RowpostError

__all__ = ["EnvironmentOption", "JsonOption", "QueueArgument", "YesOption", "command"]

Command = Callable[..., ExitCode | int | None]

EnvironmentOption = Annotated[
    str | None,
    typer.Option(
        "--env",
        metavar="NAME|PATH",
        help="The environment: a name in deploy/environments, or a file's path. Default: $ROWPOST_ENV, else local.",
        show_default=False,
        autocompletion=environment_names,
    ),
]
QueueArgument = Annotated[
    str, typer.Argument(metavar="QUEUE", help="A queue's name or address.", autocompletion=queue_names)
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else there.")]


def command(app: typer.Typer, name: str | None = None) -> Callable[[Command], Command]:
    """Registers a function as a command of `app`: it gets a Session first, and its result is the exit code."""

    def register(function: Command) -> Command:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
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
            raise typer.Exit(_ended(session, function, values))

        parameters = [parameter.replace(kind=keyword) for parameter in own] + shared
        run.__signature__ = inspect.Signature(parameters)
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__doc__, run.__name__ = function.__doc__, function.__name__
        app.command(name)(run)
        return function

    return register


def _ended(session: Session, function: Command, values: dict[str, Any]) -> int:
    """Runs a command and turns its ending into words on stderr and an exit code."""
    try:
        return int(function(session, **values) or ExitCode.OK)
    except (typer.Exit, typer.BadParameter):
        raise
    except BrokenPipeError:
        # the reader has left; flushing at exit would complain again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 -- the last stop
        text, code = _ending(error)
        session.note(f"rowpost: {visible(' '.join(text.split()))}")
        return code


def _ending(error: BaseException) -> tuple[str, ExitCode]:
    """What to say about an error, and how to end. A bug is shown with all that helps to find it."""
    match error:
        case RowpostError():
            ending = str(error), exit_code(error)
        case Interrupted():
            ending = f"stopped by Ctrl-C: {error}", ExitCode.INTERRUPTED
        case KeyboardInterrupt() | typer.Abort():
            ending = "stopped by Ctrl-C: nothing was changed", ExitCode.INTERRUPTED
        case OSError():
            ending = f"{error.strerror or error}: {error.filename}", ExitCode.FAILED
        case _:
            traceback.print_exception(error)
            ending = "this is a mistake in rowpost: please report it with the lines above", ExitCode.BUG
    return ending
