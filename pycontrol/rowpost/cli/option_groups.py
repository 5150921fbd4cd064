"""Options that several commands have, as one dataclass: its fields are the options, and the command receives one value.

@dataclass(frozen=True)
class Limits:
    rows: Annotated[int, typer.Option("--rows", help="…")] = 10

def show(session: Session, queue: QueueArgument, limits: Limits) -> None: ...

command(app)(grouped(show))
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, TypeVar, get_type_hints

__all__ = ["grouped"]

Result = TypeVar("Result")


def grouped(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function with the fields of each dataclass among the parameters of `function` as parameters of its own,
    in its place.
    """
    parameters = inspect.signature(function, eval_str=True).parameters
    groups: dict[str, Any] = {
        name: each.annotation for name, each in parameters.items() if is_dataclass(each.annotation)
    }

    @wraps(function)
    def run(session: object, **values: Any) -> Result:
        made = {
            name: kind(**{each.name: values.pop(each.name) for each in fields(kind)}) for name, kind in groups.items()
        }
        return function(session, **values, **made)

    flat = [each for name, own in parameters.items() for each in (_options(groups[name]) if name in groups else [own])]
    first, *others = (
        each if number == 0 else each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for number, each in enumerate(flat)
    )
    vars(run)["__signature__"] = inspect.Signature([first, *others])
    return run


def _options(group: Any) -> list[inspect.Parameter]:
    types = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=types[each.name])
        for each in fields(group)
    ]
