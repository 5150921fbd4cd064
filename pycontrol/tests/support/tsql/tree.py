"""ScriptDom's tree of a batch, and five mistakes in it.

DacFx refuses an undeclared variable, and everything that it is given afterwards. It lets the others pass: a required parameter left out; arguments of sp_executesql that its parameter list does not declare; a row of INSERT that is longer
or shorter than its column list; the number of a function's arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Node", "Signatures", "full_name", "kind", "misfits", "undeclared", "walk"]


class Node:
    """A node of the tree: its properties have the names of ScriptDom's class; one without a value is None."""

    __slots__ = ("fields", "kind")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.kind: str = fields.pop("$type").partition(",")[0].rpartition(".")[2]
        self.fields = fields

    def __getattr__(self, name: str) -> Any:
        return self.fields.get(name)

    def text(self, batch: str) -> str:
        """The node's text in the text of its batch. .NET counts in units of UTF-16."""
        units = batch.encode("utf-16-le")
        return units[2 * self.StartOffset : 2 * (self.StartOffset + self.FragmentLength)].decode("utf-16-le")


@dataclass(frozen=True)
class Signatures:
    """What the procedures and functions of a set take, names in lower case."""

    procedures: dict[str, dict[str, bool]] = field(default_factory=dict)  # name → parameter → required
    functions: dict[str, int] = field(default_factory=dict)  # name → how many parameters

    def remember(self, statement: Node) -> str | None:
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


def undeclared(tree: Node) -> Iterator[tuple[Node, str]]:
    """Variables that a batch uses and does not declare. The names of a call's arguments are the procedure's."""
    declared = {name.lower() for node in walk(tree) if (name := _declares(node))}
    foreign = {id(node.Variable) for node in walk(tree) if kind(node) == "ExecuteParameter"}
    for node in walk(tree):
        if kind(node) == "VariableReference" and id(node) not in foreign and node.Name.lower() not in declared:
            yield node, f"variables: {node.Name} is not declared"


def _declares(node: Node) -> str | None:
    name = node.VariableName
    return name.Value if isinstance(name, Node) else None


def misfits(tree: Node, signatures: Signatures) -> Iterator[tuple[Node, str]]:
    """What is wrong with calls and inserts, where DacFx says nothing."""
    for node in walk(tree):
        if kind(node) == "ExecutableProcedureReference":
            yield from ((node, said) for said in _call(node, signatures))
        elif kind(node) == "InsertSpecification":
            yield from ((node, said) for said in _insert(node))
        elif kind(node) == "FunctionCall" and kind(node.CallTarget) == "MultiPartIdentifierCallTarget":
            owner = [f"[{part.Value}]" for part in node.CallTarget.MultiPartIdentifier.Identifiers]
            name = ".".join([*owner, f"[{node.FunctionName.Value}]"])
            wanted, given = signatures.functions.get(name.lower()), len(node.Parameters)
            if wanted not in (None, given):
                yield node, f"arguments: {name} takes {wanted}, not {given}"


def _call(node: Node, signatures: Signatures) -> Iterator[str]:
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


def _dynamic_call(node: Node, given: list[str]) -> Iterator[str]:
    if len(node.Parameters) > 1 and kind(node.Parameters[1].ParameterValue) == "StringLiteral":
        declared = re.findall(r"(@\w+)\s+\w", node.Parameters[1].ParameterValue.Value.lower())
        if declared != given:
            yield f"arguments: sp_executesql declares {', '.join(declared)} and is given {', '.join(given)}"


def _insert(node: Node) -> Iterator[str]:
    columns, source = len(node.Columns), node.InsertSource
    rows: list[int] = []
    if columns and kind(source) == "ValuesInsertSource":
        rows = [len(row.ColumnValues) for row in source.RowValues]
    elif columns and kind(source) == "SelectInsertSource" and kind(source.Select) == "QuerySpecification":
        elements = source.Select.SelectElements
        rows = [] if any(kind(e) == "SelectStarExpression" for e in elements) else [len(elements)]
    for length in {r for r in rows if r != columns}:
        yield f"insert: {columns} columns are named and {length} values given"


def walk(node: Node) -> Iterator[Node]:
    """A node of the tree and all below it, in the order of the text as far as ScriptDom's properties keep it."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        for value in reversed(node.fields.values()):
            if isinstance(value, Node):
                waiting.append(value)
            elif isinstance(value, list):
                waiting += [each for each in reversed(value) if isinstance(each, Node)]


def kind(node: Node | None) -> str:
    """Name of a node's class; empty where there is no node."""
    return "" if node is None else node.kind


def full_name(name: Node) -> str:
    """A SchemaObjectName with its parts in brackets."""
    return ".".join(f"[{part.Value}]" for part in name.Identifiers)
