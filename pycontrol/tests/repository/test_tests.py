"""The tests' own rules: what lies where, who imports whom, and that each test can fail.

A test asserts if its function has an `assert` statement, uses `pytest.raises`, `pytest.warns` or `pytest.fail`, or calls
a helper that asserts. A helper is found by its name: in the test's module, in the `conftest.py` files above it, or in a
module of `tests.support` that one of these imports.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).parents[1]
SUPPORT = TESTS / "support"
#: a user's project has tests of its own
MODULES = sorted(path for path in TESTS.rglob("*.py") if not path.is_relative_to(TESTS / "data"))
TEST_MODULES = [path for path in MODULES if path.name.startswith("test_")]
CHECKS = {"pytest.raises", "pytest.warns", "pytest.fail"}
#: tests that have no assertion of their own, with what makes them fail
WITHOUT_ASSERTION = {
    "database/test_translate.py::test_a_supported_postgresql_is_not_refused": "the check raises an error",
    "database/test_translate.py::test_azure_and_what_is_new_enough_is_not_refused": "the check raises an error",
}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name(path: Path) -> str:
    return path.relative_to(TESTS).as_posix()


def imported(module: ast.Module) -> Iterator[str]:
    """Yield the full names of what a module imports, at any depth: modules, and names in modules."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imports_of_tests(module: ast.Module) -> list[str]:
    """Return the imports of test modules."""
    parts = {each: each.strip(".").split(".") for each in imported(module)}
    return [
        each
        for each, words in parts.items()
        if (words[0] == "tests" or each.startswith(".")) and any(word.startswith("test_") for word in words[:3])
    ]


def helpers(path: Path) -> list[Path]:
    """Return the modules whose functions a test module can call: its own, conftest modules, and what they import."""
    found = [
        path,
        *(
            folder / "conftest.py"
            for folder in path.parents
            if (folder / "conftest.py").is_file() and folder.is_relative_to(TESTS)
        ),
    ]
    for each in found:  # grows while it is read
        for module in imported(tree(each)):
            place = TESTS.parent.joinpath(*module.split("."))
            for source in (place.with_suffix(".py"), place / "__init__.py"):
                if source.is_relative_to(SUPPORT) and source.is_file() and source not in found:
                    found.append(source)
    return found


class Facts(NamedTuple):
    """What a function does by itself: whether it asserts, and the names of the functions and methods that it calls."""

    name: str
    asserts: bool
    calls: frozenset[str]


def facts_of(module: ast.Module) -> list[Facts]:
    """Return the facts of all functions of a module, methods and nested functions included."""
    return [
        Facts(node.name, any(map(asserts, ast.walk(node))), frozenset(filter(None, map(called, ast.walk(node)))))
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


@cache
def facts(path: Path) -> list[Facts]:
    return facts_of(tree(path))


def asserts(node: ast.AST) -> bool:
    if isinstance(node, ast.Raise):
        return node.exc is not None and "AssertionError" in ast.unparse(node.exc)
    return isinstance(node, ast.Assert) or (isinstance(node, ast.Call) and ast.unparse(node.func) in CHECKS)


def called(node: ast.AST) -> str | None:
    function = node.func if isinstance(node, ast.Call) else None
    return getattr(function, "attr", None) or getattr(function, "id", None)


def without_assertion(tests: list[Facts], scope: list[Facts]) -> list[str]:
    """Return the names of the tests that neither assert nor call a helper that asserts."""
    helping = [each for each in scope if not each.name.startswith("test_")]
    asserting = {each.name for each in helping if each.asserts}
    while more := {each.name for each in helping if each.calls & asserting} - asserting:
        asserting |= more
    return [
        each.name for each in tests if each.name.startswith("test_") and not each.asserts and not each.calls & asserting
    ]


@cache
def unasserted(path: Path) -> list[str]:
    """Return the ids of a test module's tests without an assertion."""
    scope = [each for helper in helpers(path) for each in facts(helper)]
    return [f"{name(path)}::{each}" for each in without_assertion(facts(path), scope)]


def test_outside_of_support_there_are_tests_and_nothing_else():
    others = [
        name(path)
        for path in MODULES
        if not path.is_relative_to(SUPPORT)
        and not path.name.startswith("test_")
        and path.name not in ("conftest.py", "__init__.py")
    ]

    assert others == []


def test_support_holds_no_tests():
    found = [
        name(path) for path in MODULES if path.is_relative_to(SUPPORT) and path.name.startswith(("test_", "conftest"))
    ]
    found += [
        f"{name(path)}:{function.name}"
        for path in MODULES
        if path.is_relative_to(SUPPORT)
        for function in facts(path)
        if function.name.startswith("test_")
    ]

    assert found == []


def test_no_module_imports_a_test():
    assert {name(path): found for path in MODULES if (found := imports_of_tests(tree(path)))} == {}


def test_every_test_asserts():
    assert [each for path in TEST_MODULES for each in unasserted(path) if each not in WITHOUT_ASSERTION] == []


def test_a_listed_test_exists_and_has_no_assertion():
    assert set(WITHOUT_ASSERTION) - {each for path in TEST_MODULES for each in unasserted(path)} == set()


@pytest.mark.parametrize(
    "statement",
    [
        "from tests.workers.test_pool import history",
        "import tests.workers.test_pool",
        "from tests.workers import test_pool",
        "def f():\n    from tests.workers.test_pool import history",
        "from .test_pool import history",
        "from . import test_pool",
    ],
)
def test_an_import_of_a_test_is_found(statement):
    assert imports_of_tests(ast.parse(statement)) != []


def test_an_import_of_support_is_no_import_of_a_test():
    assert imports_of_tests(ast.parse("from tests.support.probe import test_probe\nimport test_other")) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def test_a():\n    f()", ["test_a"]),
        ("def f(): ...\ndef test_a():\n    f()", ["test_a"]),
        ("def test_a():\n    with pytest.raises(ValueError):\n        f()", []),
        ("def f():\n    assert x\ndef g():\n    f()\ndef test_a():\n    g()", []),
        ("class C:\n    def until(self):\n        assert x\ndef test_a(c):\n    c.until()", []),
        ("class C:\n    def test_a(self):\n        f()", ["test_a"]),
    ],
)
def test_a_test_without_an_assertion_is_found(source, found):
    module = facts_of(ast.parse(source))

    assert without_assertion(module, module) == found
