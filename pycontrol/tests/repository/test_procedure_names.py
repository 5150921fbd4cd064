"""The command line and the dashboard read and change a database through the rooms below them: they name no procedure."""

import ast
from pathlib import Path

import pytest

import rowpost
from rowpost.database.contract import load_contract

PACKAGE = Path(rowpost.__file__).parent
CALLS = ("call", "call_all", "call_atomically")
NAMES = {procedure.name for procedure in load_contract().procedures}
#: calls that belong to no operation and to no document, by module
OWN_CALLS = {
    "cli/deploy.py": {"get_version"},
    "cli/run/workers.py": {"outbox_status"},
}


def procedures_in(text: str) -> set[str]:
    """The names of procedures in the arguments of calls of a connection."""
    calls = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", None) in CALLS
    ]
    constants = [node.value for call in calls for node in ast.walk(call) if isinstance(node, ast.Constant)]
    return NAMES.intersection(value for value in constants if isinstance(value, str))


def test_neither_the_command_line_nor_the_dashboard_names_a_procedure():
    modules = [path for room in ("cli", "dashboard") for path in (PACKAGE / room).rglob("*.py")]

    found = {path.relative_to(PACKAGE).as_posix(): procedures_in(path.read_text(encoding="utf-8")) for path in modules}

    assert {name: names for name, names in found.items() if names} == OWN_CALLS


@pytest.mark.parametrize(
    "text",
    [
        'database.call("list_queues")',
        'self.pool.call_all([("list_queues", None, {})])',
        'c.call_atomically("list_queues", count=1)',
    ],
)
def test_a_name_is_found_in_every_kind_of_call(text):
    assert procedures_in(text) == {"list_queues"}
