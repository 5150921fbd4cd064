"""The inner process of compiler.py: ScriptDom parses each batch, DacFx builds one model per set and checks it.

Reads sets of batches as JSON from standard input, writes findings as JSON to standard output. It is a process of its
own because the .NET runtime reads its environment when it starts, and cannot be unloaded.

DacFx resolves tables, columns, procedures, functions, parameters and variables; tsql_tree.py looks at what passes it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.tsql.tree import Signatures, full_name, kind, misfits, walk

__all__ = ["check_set", "main", "start_dotnet"]

MODULE = re.compile("Create(OrAlter)?(Procedure|Function|View|Trigger)Statement")
DEFINITIONS = (
    "CreateTableStatement",
    "CreateSchemaStatement",
    "CreateRoleStatement",
    "CreateTypeTableStatement",
    "CreateTypeUddtStatement",
)
#: definitions that a loose batch may hold below IF: each becomes part of the model
NESTED = ("CreateIndexStatement", "CreateRoleStatement", "GrantStatement")
ELEMENT = re.compile(r"(?:Sql\w+: |element )((?:\[(?:[^\]]|\]\])*\]\.?)+)(?: contains| has |: The)")
#: the server's own, which takes whatever parameters its second argument declares; checked here instead
OPEN_ENDED = re.compile(r"unresolved reference to object \[sys\]\.\[sp_executesql\]")
CATALOG = "sys~"

Definition = tuple[str, str, int]  # text, path, line


@dataclass
class Found:
    """What the batches of one set define, for the checks of this module, and what was found wrong."""

    signatures: Signatures = field(default_factory=Signatures)
    places: dict[str, tuple[str, int]] = field(default_factory=dict)  # model element → path and line
    findings: list[tuple[str, int, str]] = field(default_factory=list)


def start_dotnet(assemblies: str, dotnet: str, config: str) -> Any:
    """Starts the runtime and loads the assemblies; returns the module of ScriptDom's classes."""
    import clr_loader
    from pythonnet import set_runtime

    set_runtime(clr_loader.get_coreclr(runtime_config=config, dotnet_root=dotnet))
    import clr

    for name in ("TransactSql.ScriptDom", "Dac", "Dac.Extensions"):
        clr.AddReference(str(Path(assemblies) / f"Microsoft.SqlServer.{name}"))
    from Microsoft.SqlServer.TransactSql import ScriptDom

    return ScriptDom


def check_set(script_dom: Any, batches: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    """Parses and compiles batches as one database; returns path, line and message of each finding."""
    found = Found()
    parsed = [(batch, tree) for batch in batches if (tree := _parse(script_dom, batch, found)) is not None]
    known = _catalog_names(parsed)
    model = _build(
        [
            (text, batch["path"], _line(batch, node))
            for batch, tree in parsed
            for text, node in _definitions(batch, tree, known, found)
        ],
        found,
    )
    for message in model.Validate():
        if not OPEN_ENDED.search(message.Message):
            found.findings.append(_place(f"{message.Prefix}{message.Number}: {message.Message}", found))
    for batch, tree in parsed:
        found.findings += [(batch["path"], _line(batch, node), said) for node, said in misfits(tree, found.signatures)]
    return sorted({(path, line, text.replace(f"[{CATALOG}]", "[sys]")) for path, line, text in found.findings})


def _build(definitions: list[Definition], found: Found) -> Any:
    """The model of all definitions that DacFx takes; what it says of the others becomes a finding."""
    model, sound = _new_model(), []
    for definition in definitions:
        said = _add(model, definition)
        if said:  # the model is spoilt: it refuses everything from now on
            found.findings += [(*definition[1:], each) for each in said]
            model.Dispose()
            model = _new_model()
        else:
            sound.append(definition)
    if len(sound) == len(definitions):
        return model
    model.Dispose()
    model = _new_model()
    for definition in sound:
        _add(model, definition)
    return model


def _new_model() -> Any:
    from Microsoft.SqlServer.Dac.Model import SqlServerVersion, TSqlModel, TSqlModelOptions

    return TSqlModel(SqlServerVersion.Sql150, TSqlModelOptions())


def _add(model: Any, definition: Definition) -> list[str]:
    """Add a definition to a model; return what DacFx has against it."""
    from Microsoft.SqlServer.Dac.Model import DacModelException

    try:
        model.AddObjects(definition[0])
    except DacModelException as error:
        return [f"{each.Prefix}{each.Number}: {each.Message}" for each in error.Messages] or [str(error.Message)]
    return []


def _parse(script_dom: Any, batch: dict[str, Any], found: Found) -> Any:
    from System.IO import StringReader

    tree, errors = script_dom.TSql150Parser(True).Parse(StringReader(batch["text"]), None)
    found.findings += [(batch["path"], batch["line"] + e.Line - 1, f"syntax: {e.Message}") for e in errors]
    return None if errors.Count else tree


def _definitions(batch: dict[str, Any], tree: Any, known: set[str], found: Found) -> Iterator[tuple[str, Any]]:
    """The definitions in a batch, each as text for the model; what stands loose becomes a procedure's body."""
    statements = [s for b in tree.Batches for s in b.Statements]
    if len(statements) == 1 and MODULE.fullmatch(kind(statements[0])):
        name = found.signatures.remember(statements[0])
        if name is not None:
            found.places[name] = (batch["path"], _line(batch, statements[0]))
        yield _text(statements[0], known, as_create=True), statements[0]
        return
    loose = [s for s in statements if kind(s) not in DEFINITIONS]
    for statement in statements:
        if kind(statement) in DEFINITIONS:
            if kind(statement) == "CreateTableStatement":
                found.places[full_name(statement.SchemaObjectName)] = (batch["path"], _line(batch, statement))
            yield _text(statement, known), statement
    for number, node in enumerate(n for s in loose for n in walk(s) if kind(n) in NESTED):
        rename = None
        if kind(node) == "CreateIndexStatement":
            rename = node.Name if number else None
            name = f"{node.Name.Value}~{number}" if number else node.Name.Value
            found.places[f"{full_name(node.OnName)}.[{name}]"] = (batch["path"], _line(batch, node))
        yield _text(node, known, unique=(rename, number)), node
    if loose:
        name = f"{batch['path']}~{batch['line']}"
        found.places[f"[{CATALOG}].[{name}]"] = (batch["path"], batch["line"])
        body = "\n".join(_text(s, known) for s in loose)
        yield f"CREATE PROCEDURE [{CATALOG}].[{name}] AS\n{body}", loose[0]


def _text(node: Any, known: set[str], *, as_create: bool = False, unique: tuple[Any, int] = (None, 0)) -> str:
    """A node's text, with sys.x as [sys~].x where server_catalog.sql declares it."""
    stream = node.ScriptTokenStream
    texts = [stream[i].Text for i in range(node.FirstTokenIndex, node.LastTokenIndex + 1)]
    if as_create:
        first = [t.upper() for t in texts if t.strip()][:3]
        if first == ["CREATE", "OR", "ALTER"]:
            for word in ("OR", "ALTER"):
                texts[next(i for i, t in enumerate(texts) if t.upper() == word)] = ""
    for i in range(len(texts) - 2):
        if texts[i].lower() == "sys" and texts[i + 1] == "." and texts[i + 2].strip("[]").lower() in known:
            texts[i] = f"[{CATALOG}]"
    if unique[0] is not None:
        texts[unique[0].FirstTokenIndex - node.FirstTokenIndex] = f"[{unique[0].Value}~{unique[1]}]"
    return "".join(texts)


def _catalog_names(parsed: list[tuple[dict[str, Any], Any]]) -> set[str]:
    names = set()
    for _, tree in parsed:
        for statement in (s for b in tree.Batches for s in b.Statements):
            name = None
            if kind(statement) == "CreateTableStatement":
                name = statement.SchemaObjectName
            elif kind(statement) == "CreateProcedureStatement":
                name = statement.ProcedureReference.Name
            elif kind(statement) == "CreateFunctionStatement":
                name = statement.Name
            if name is not None and name.SchemaIdentifier is not None and name.SchemaIdentifier.Value == CATALOG:
                names.add(name.BaseIdentifier.Value.lower())
    return names


def _place(message: str, found: Found) -> tuple[str, int, str]:
    """Where a message of the model belongs: to the definition of the element that it names, or of what holds it."""
    element = ELEMENT.search(message)
    name = element.group(1) if element else ""
    while name and name not in found.places:
        name = name.rpartition(".[")[0]
    path, line = found.places.get(name, ("", 0))
    return path, line, message


def _line(batch: dict[str, Any], node: Any) -> int:
    return batch["line"] + node.StartLine - 1


def main() -> None:
    """Reads {"runtime": [...], "sets": [[batch, ...], ...]}; writes a list of findings per set."""
    request = json.load(sys.stdin)
    script_dom = start_dotnet(*request["runtime"])
    json.dump([check_set(script_dom, batches) for batches in request["sets"]], sys.stdout)


if __name__ == "__main__":
    main()
