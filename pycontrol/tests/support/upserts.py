"""Finds calls of upserts in autocommit. An upsert holds its key (HOLDLOCK) from the UPDATE to the INSERT: only a
transaction makes this last, because without one each statement releases its locks.

A call is in a transaction if a `with …transaction()` block or an earlier `….begin()` of the same function encloses it.
Another one has a comment `# rule upsert_in_transaction: reason` on the line above.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["in_autocommit", "upserts"]

NAME = re.compile(r"CREATE OR ALTER PROCEDURE rowpost\.(?:\[(\w+):|(\w+))")
HELPER = re.compile(r"EXEC rowpost\.\[?(_\w+)")
EXCUSE = re.compile(r"\s*# rule upsert_in_transaction: \S")


def upserts(procedures: Path) -> set[str]:
    """Return the names of procedures that lock a key with HOLDLOCK and then insert, themselves or by a helper."""
    texts = {}
    for path in procedures.rglob("*.sql"):
        text = path.read_text(encoding="utf-8")
        if "postgresql" not in path.parts and (name := NAME.search(text)):
            texts[name[1] or name[2]] = text
    found = {
        name for name, text in texts.items() if "HOLDLOCK" in text and "INSERT INTO" in text.partition("HOLDLOCK")[2]
    }
    while more := {name for name, text in texts.items() if name not in found and found & set(HELPER.findall(text))}:
        found |= more
    return found


def in_autocommit(source: str, names: Iterable[str]) -> list[tuple[int, str]]:
    """Return line and procedure of each call in a module outside of a transaction; also excuses that excuse nothing (line, "")."""
    lines = source.splitlines()
    calls = list(_calls(ast.parse(source), set(names), False))
    excused = {line for line, _, _ in calls if EXCUSE.match(lines[line - 2])}
    wrong = [(line, name) for line, name, safe in calls if not safe and line not in excused]
    needed = {line for line, _, safe in calls if not safe}
    idle = [(number, "") for number, text in enumerate(lines, 1) if EXCUSE.match(text) and number + 1 not in needed]
    return sorted([*wrong, *idle])


def _calls(node: ast.AST, names: set[str], safe: bool) -> Iterator[tuple[int, str, bool]]:
    if isinstance(node, ast.FunctionDef):
        safe = False
    if isinstance(node, ast.With):
        safe = safe or any(_method(item.context_expr) == "transaction" for item in node.items)
    first = node.args[0] if _method(node) == "call" and isinstance(node, ast.Call) and node.args else None
    if isinstance(first, ast.Constant) and first.value in names:
        yield first.lineno, str(first.value), safe
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, names, safe)
        begins = isinstance(child, ast.Expr) and _method(child.value) == "begin"
        safe = safe or begins


def _method(node: ast.AST) -> str:
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
