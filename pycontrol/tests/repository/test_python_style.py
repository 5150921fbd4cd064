"""The house style, held by test where it can be: the Python of the package."""

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import rowpost

PACKAGE = Path(rowpost.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
SQL = re.compile(
    r"\s*(?:SELECT|INSERT|UPDATE|DELETE|MERGE|CREATE|ALTER|DROP|TRUNCATE|GRANT|REVOKE|EXEC|EXECUTE|CALL|DECLARE|BEGIN|COMMIT"
    r"|ROLLBACK|SAVE|SAVEPOINT|SET|WITH|VALUES|LISTEN|NOTIFY|LOCK)\b(?:\s+[\w@\"\[{(*']|;)"
)

#: its names are those of its stub, which test_public_names.py compares
STUBBED = PACKAGE / "__init__.py"


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def module_of(path: Path) -> str:
    parts = ("rowpost", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def documented(node: ast.AST) -> ast.Constant | None:
    """The constant that is a node's docstring."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            return first.value
    return None


def texts(path: Path) -> Iterator[ast.Constant]:
    """String constants of a module, parts of f-strings included, docstrings not."""
    docstrings = {id(documented(node)) for node in ast.walk(tree(path))}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node


#: modules that spell SQL: calls in the dialects, what surrounds a script and its batches, and GRANT statements
SPELL_SQL = (
    "database/dialects/", "deploy/by_hand.py", "deploy/runner.py", "deploy/grants.py", "deploy/contract_sql.py",
    "archive/finding.py",  # of an engine that reads archives, not of a server
)  # fmt: skip


def test_sql_stands_in_dialects_and_nowhere_else_in_python():
    found = [
        f"{name(path)}:{node.lineno}: {node.value.strip()[:60]}"
        for path in MODULES
        if not name(path).startswith(SPELL_SQL)
        for node in texts(path)
        if SQL.match(node.value)
    ]

    assert found == []


@pytest.mark.parametrize(
    ("text", "is_sql"),
    [
        ("SELECT 1", True),
        ("  DELETE FROM x", True),
        ("EXEC rowpost.get_version", True),
        ("COMMIT;", True),
        ("Select a queue to look at", False),
        ("SET", False),
        ("the server's SELECT", False),
    ],
)
def test_the_guard_tells_sql_from_prose(text, is_sql):
    assert bool(SQL.match(text)) is is_sql


# not the names of message types, of elements in XML and of OpenTelemetry's scopes
HEADER = re.compile(
    r"(NServiceBus(?!\.KeyValuePair|\.Metrics|\.Core)|ServiceControl(?!\.(Endpoint)?Plugin)|\$\.diagnostics)\.[\w.]+"
)


#: how connections are opened, and the one module for each way: it sets what the protocol depends on. ADBC's goes to where one of psycopg's went
OPENS = {
    "psycopg.connect": "database/dialects/postgresql/session.py",
    "dbapi.connect": "database/dialects/postgresql/copying.py",
    "pyodbc.connect": "database/dialects/sqlserver/dialect.py",
}


def opened(module: ast.Module) -> Iterator[str]:
    """How a module opens connections, such as psycopg.connect."""
    drivers = {way.split(".")[0] for way in OPENS} | {"adbc_driver_postgresql", "AsyncConnection", "PGconn"}
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and node.attr in ("connect", "connect_start"):
            base = ast.unparse(node.value)
            if base.split(".")[0] in drivers or base.endswith(("psycopg.Connection", "PGconn")):
                yield ast.unparse(node)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in drivers:
            yield from (
                f"from {node.module} import {each.name}" for each in node.names if each.name.startswith("connect")
            )


def test_each_driver_opens_connections_in_one_module():
    found = {(way, name(path)) for path in MODULES for way in opened(tree(path))}

    assert found == set(OPENS.items())


@pytest.mark.parametrize(
    "text",
    [
        "import psycopg\npsycopg.Connection.connect('')",
        "from psycopg import connect",
        "psycopg.pq.PGconn.connect_start(b'')",
    ],
)
def test_the_guard_sees_other_ways_to_open_a_connection(text):
    assert list(opened(ast.parse(text)))


def test_the_name_of_a_header_stands_in_one_module():
    found = [
        f"{name(path)}:{node.lineno}: {node.value}"
        for path in MODULES
        # the columns of archives are described by their headers
        if name(path) not in ("wire/headers.py", "archive/columns.py")
        for node in texts(path)
        if HEADER.fullmatch(node.value)
    ]

    assert found == []


def public_definitions(path: Path) -> set[str]:
    """Classes, functions and constants of a module whose names do not begin with an underscore."""
    found = set()
    for node in tree(path).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update(target.id for target in targets if isinstance(target, ast.Name))
    return {each for each in found if not each.startswith("_")}


@cache
def imported_elsewhere() -> dict[str, set[str]]:
    """By module, the names that other modules of the package, tests, benchmarks and examples import from it."""
    repository = PACKAGE.parents[1]
    found: dict[str, set[str]] = {}
    for folder in (PACKAGE, PACKAGE.parent / "tests", repository / "benchmarks", repository / "examples"):
        for path in folder.rglob("*.py"):
            for node in ast.walk(tree(path)):
                if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    found.setdefault(node.module, set()).update(alias.name for alias in node.names)
    return found


def unlisted(path: Path) -> list[str]:
    """The names that a module defines, that others import, and that its __all__ leaves out."""
    listed: set[str] = set()
    for node in tree(path).body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == "__all__"
            and path != STUBBED
        ):
            listed = set(ast.literal_eval(node.value))
    return sorted((public_definitions(path) & imported_elsewhere().get(module_of(path), set())) - listed)


def test_all_names_everything_that_others_import():
    assert {name(path): left for path in MODULES if (left := unlisted(path))} == {}


def in_house_order(names: list[str]) -> list[str]:
    """Constants, then classes, then functions, each by name."""
    return sorted(names, key=lambda each: (0 if each.isupper() else 1 if each[:1].isupper() else 2, each))


def test_all_is_sorted_and_names_what_is_there():
    modules = [
        importlib.import_module(module_of(path))
        for path in MODULES
        if path != STUBBED and "__all__" in path.read_text(encoding="utf-8")
    ]

    assert [module.__name__ for module in modules if list(module.__all__) != in_house_order(module.__all__)] == []
    assert [
        f"{module.__name__}.{each}" for module in modules for each in module.__all__ if not hasattr(module, each)
    ] == []


def test_every_module_with_public_names_has_all():
    without = [
        name(path)
        for path in MODULES
        if path.name not in ("__main__.py",)
        and "__all__" not in path.read_text(encoding="utf-8")
        and any(
            isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
            for node in tree(path).body
        )
    ]

    assert without == []


def test_every_public_class_and_function_has_a_docstring():
    without = [
        f"{name(path)}:{node.name}"
        for path in MODULES
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_") and not documented(node)
    ]

    assert without == []


def test_no_error_is_swallowed_whole():
    swallowed = [
        f"{name(path)}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")))
        and all(isinstance(each, ast.Pass) for each in node.body)
    ]

    assert swallowed == []
