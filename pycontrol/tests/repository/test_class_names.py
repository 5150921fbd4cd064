"""One name, one thing: no two modules of the package have a public class of the same name."""

import ast
from collections import defaultdict
from pathlib import Path

import rowpost

PACKAGE = Path(rowpost.__file__).parent
#: names that may occur twice, each with its reason
EXCEPTIONS = {
    "Batch": "messages of an archive, and statements of a script: neither module is imported beside the other",
    "Call": "a call of a procedure, and its form for libpq, which no other room sees",
    "Change": "rooms that do not import each other: a deployment, archives, and an edited message",
    "Checkpoint": "an archive's and a stream's, which Spark calls so",
    "Counts": "rooms that do not import each other: maintenance, bulk operations, and the bridge",
    "Deployment": "a deployment, and the dashboard's document about it",
    "Failed": "an event, and the bridge's messages that cannot cross",
    "Finding": "of two commands that are called verify",
    "Logged": "a worker's report, and the event that it becomes",
    "Moved": "delayed messages, and those that crossed the bridge",
    "Operation": "an operator's action, and the word of OpenAPI for a path",
    "Outcome": "of a message, and of a demo",
    "Part": "of an archive, and of a deployment",
    "Peeked": "an answer, and the event that it becomes",
    "Progress": "of an archive, a demo, and a worker",
    "Purged": "the result of a purge, and its event",
    "QueueState": "of an archive's stream, and of the dashboard",
    "Refused": "a command's end, and a worker's report",
    "Schema": "of a table, and of a body",
    "Selection": "rooms that do not import each other: a run, an erasure, and a bulk operation",
    "Session": "a command's, and ODBC's",
    "Snapshot": "the dashboard's, and a supervisor's",
    "State": "of a SQL Server session, a deployment, and a pool",
    "Step": "of a deployment, of maintenance, and of a conversation",
    "Tally": "a worker's report, and an archive's",
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
