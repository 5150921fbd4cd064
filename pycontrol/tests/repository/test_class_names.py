"""One name, one thing: no two modules of the package have a public class of the same name."""

import ast
from collections import defaultdict
from pathlib import Path

import rowpost

PACKAGE = Path(rowpost.__file__).parent


def public_classes() -> dict[str, list[str]]:
    """Return the modules of each public class name of the package."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path.relative_to(PACKAGE).as_posix())
    return found


def test_no_two_modules_have_a_public_class_of_the_same_name():
    twice = {name: modules for name, modules in public_classes().items() if len(modules) > 1}

    assert twice == {}
