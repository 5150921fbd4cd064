"""rowpost: a message queue and service bus that lives in the database.

The names that programs need are importable from here. Each is imported from its module when it is first used. Therefore
`import rowpost` loads neither a driver nor an endpoint, and type checkers still know every name: both read
`__init__.pyi`.

    from rowpost import Endpoint, Queue, connect, load_settings

    with connect(load_settings("local")) as database:
        Queue("Sales", database).send(b"hello")
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

#: public name -> its module. The loader reads the stub, so that a package in a zip file has it too.
_MODULES = {
    name: module
    for module, name in re.findall(
        r"(?m)^from (\S+) import \w+ as (\w+)$", __spec__.loader.get_data(f"{__path__[0]}/__init__.pyi").decode()
    )
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    """Import a public name from its module at its first use (PEP 562). Raises AttributeError."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'rowpost' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
