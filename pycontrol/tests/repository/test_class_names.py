"""One name, one thing: no two modules of the package have a public class of the same name."""

import ast
from collections import defaultdict
from pathlib import Path

import rowpost

PACKAGE = Path(rowpost.__file__).parent
#: names that may occur twice, each with its reason
EXCEPTIONS = {
    "Call": "a call of a procedure, and its form for libpq, which no other room sees",
    "Change": "a change of a deployment, and of a failed message: the rooms do not import each other",
    "Counts": "of a bulk operation, and of the bridge: the rooms do not import each other",
    "Deployment": "a deployment, and the dashboard's document about it",
    "Failed": "an event, and the bridge's messages that cannot cross",
    "Moved": "delayed messages, and those that crossed the bridge",
    "Operation": "an operator's action, and the word of OpenAPI for a path",
    "Purged": "the result of a purge, and its event",
    "Refused": "a command's end, and a worker's report",
    "Selection": "of a run, and of a bulk operation: the rooms do not import each other",
    "Session": "a command's, and ODBC's",
    "Snapshot": "the dashboard's, and a supervisor's",
    "State": "of a session of SQL Server, and of a deployment",
    "Step": "of a deployment, and of maintenance",
    "Worker": "a worker's loop, and a worker as others see it",
}


def public_classes() -> dict[str, list[str]]:
    """Return the modules of each public class name of the package."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path.relative_to(PACKAGE).as_posix())
    return found


def test_no_two_modules_have_a_public_class_of_the_same_name():
    twice = {name: modules for name, modules in public_classes().items() if len(modules) > 1 and name not in EXCEPTIONS}

    assert twice == {}
