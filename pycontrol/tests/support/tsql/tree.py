"""ScriptDom's tree of a batch, and four mistakes in it that DacFx lets pass.

A required parameter left out; arguments of sp_executesql that its parameter list does not declare; a row of INSERT that
is longer or shorter than its column list; the number of a function's arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Signatures", "full_name", "kind", "misfits", "walk"]


@dataclass(frozen=True)
class Signatures:
    """What the procedures and functions of a set take, names in lower case."""

    procedures: dict[str, dict[str, bool]] = field(default_factory=dict)  # name → parameter → required
    functions: dict[str, int] = field(default_factory=dict)  # name → how many parameters

    def remember(self, statement: Any) -> str | None:
        """Takes note of a CREATE PROCEDURE or FUNCTION; returns its name, None for anything else."""
        procedure = "Procedure" in kind(statement)
        if not procedure and "Function" not in kind(statement):
            return None
        name = full_name(statement.ProcedureReference.Name if procedure else statement.Name)
        required = {p.VariableName.Value.lower(): p.Value is None for p in statement.Parameters}
        if procedure:
            self.procedures[name.lower()] = required
        else:
            self.functions[name.lower()] = len(required)
        return name


def misfits(tree: Any, signatures: Signatures) -> Iterator[tuple[Any, str]]:
    """What is wrong with calls and inserts, where DacFx says nothing."""
    for node in walk(tree):
        if kind(node) == "ExecutableProcedureReference":
            yield from ((node, said) for said in _call(node, signatures))
        elif kind(node) == "InsertSpecification":
            yield from ((node, said) for said in _insert(node))
        elif kind(node) == "FunctionCall" and kind(node.CallTarget) == "MultiPartIdentifierCallTarget":
            owner = [f"[{part.Value}]" for part in node.CallTarget.MultiPartIdentifier.Identifiers]
            name = ".".join([*owner, f"[{node.FunctionName.Value}]"])
            wanted, given = signatures.functions.get(name.lower()), node.Parameters.Count
            if wanted not in (None, given):
                yield node, f"arguments: {name} takes {wanted}, not {given}"


def _call(node: Any, signatures: Signatures) -> Iterator[str]:
    reference = node.ProcedureReference and node.ProcedureReference.ProcedureReference
    if reference is None:
        return
    name, given = full_name(reference.Name), [p.Variable and p.Variable.Name.lower() for p in node.Parameters]
    required = signatures.procedures.get(name.lower())
    if required is not None and None not in given:
        for parameter in sorted(p for p, needed in required.items() if needed and p not in given):
            yield f"arguments: {name} is called without {parameter}"
    elif required is not None:
        missing = sorted(p for p, needed in list(required.items())[len(given) :] if needed and p not in given)
        yield from (f"arguments: {name} is called without {parameter}" for parameter in missing)
    if name.lower() == "[sys].[sp_executesql]":
        yield from _dynamic_call(node, [p for p in given[2:] if p])


def _dynamic_call(node: Any, given: list[str]) -> Iterator[str]:
    if node.Parameters.Count > 1 and kind(node.Parameters[1].ParameterValue) == "StringLiteral":
        declared = re.findall(r"(@\w+)\s+\w", node.Parameters[1].ParameterValue.Value.lower())
        if declared != given:
            yield f"arguments: sp_executesql declares {', '.join(declared)} and is given {', '.join(given)}"


def _insert(node: Any) -> Iterator[str]:
    columns, source = node.Columns.Count, node.InsertSource
    rows: list[int] = []
    if columns and kind(source) == "ValuesInsertSource":
        rows = [row.ColumnValues.Count for row in source.RowValues]
    elif columns and kind(source) == "SelectInsertSource" and kind(source.Select) == "QuerySpecification":
        elements = source.Select.SelectElements
        rows = [] if any(kind(e) == "SelectStarExpression" for e in elements) else [elements.Count]
    for length in {r for r in rows if r != columns}:
        yield f"insert: {columns} columns are named and {length} values given"


_CHILDREN: dict[str, list[tuple[str, bool]]] = {}


def walk(node: Any) -> Iterator[Any]:
    """A node of the tree and all below it."""
    yield node
    if kind(node) not in _CHILDREN:
        _CHILDREN[kind(node)] = list(_child_properties(node))
    for name, many in _CHILDREN[kind(node)]:
        value = getattr(node, name)
        for child in value if many and value is not None else [value]:
            if child is not None:
                yield from walk(child)


def _child_properties(node: Any) -> Iterator[tuple[str, bool]]:
    import clr
    from Microsoft.SqlServer.TransactSql.ScriptDom import TSqlFragment

    base = clr.GetClrType(TSqlFragment)
    for each in node.GetType().GetProperties():
        arguments = list(each.PropertyType.GetGenericArguments()) if each.PropertyType.IsGenericType else []
        if not each.GetIndexParameters() and any(base.IsAssignableFrom(t) for t in [each.PropertyType, *arguments]):
            yield each.Name, bool(arguments)


def kind(node: Any) -> str:
    """Name of a node's class; empty where there is no node."""
    return "" if node is None else type(node).__name__  # GetType().Name is the same, and takes ten times as long


def full_name(name: Any) -> str:
    """A SchemaObjectName with its parts in brackets."""
    return ".".join(f"[{part.Value}]" for part in name.Identifiers)
