"""The inner process of compiler.py: ScriptDom parses each batch, DacFx builds one model per set and checks it.

Reads sets of batches as JSON from standard input, writes findings as JSON to standard output. It is a process of its
own because the .NET runtime reads its environment when it starts, and cannot be unloaded.

DacFx resolves tables, columns, procedures, functions and parameters; tree.py looks at what passes it, and at variables:
a model that was given an undeclared variable takes nothing more, and has to be built again.

A call from Python into .NET takes microseconds, and a tree has thousands of nodes. So a tree crosses over once, as JSON.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rowpost.deploy.sql_text import tokens
from tests.support.tsql.rules import Batch, check_rules
from tests.support.tsql.tree import Node, Signatures, full_name, kind, misfits, undeclared, walk

__all__ = ["Parser", "check_set", "main", "start_dotnet"]

MODULE = re.compile("Create(OrAlter)?(Procedure|Function|View|Trigger)Statement")
DEFINITIONS = (
    "CreateTableStatement",
    "CreateSchemaStatement",
    "CreateRoleStatement",
    "CreateUserStatement",
    "CreateTypeTableStatement",
    "CreateTypeUddtStatement",
)
#: definitions that a loose batch may hold below IF: each becomes part of the model
NESTED = (
    "CreateTableStatement",
    "CreateIndexStatement",
    "CreateRoleStatement",
    "CreateUserStatement",
    "GrantStatement",
)
ELEMENT = re.compile(r"(?:Sql\w+: |element )((?:\[(?:[^\]]|\]\])*\]\.?)+)(?: contains| has |: The)")
#: the server's own, which takes whatever parameters its second argument declares; checked here instead
OPEN_ENDED = re.compile(r"unresolved reference to object \[sys\]\.\[sp_executesql\]")
CATALOG = "sys~"
OF_SYS = re.compile(r"\bsys(?=\.\[?(\w+))", re.IGNORECASE)
#: what the JSON of a node leaves out: the tokens of the whole batch, and what follows from the rest
LEFT_OUT = ("ScriptTokenStream", "StartColumn", "FirstTokenIndex", "LastTokenIndex")

Definition = tuple[str, str, int]  # text, path, line


@dataclass
class Found:
    """What the batches of one set define, for the checks of this module, and what was found wrong."""

    signatures: Signatures = field(default_factory=Signatures)
    places: dict[str, tuple[str, int]] = field(default_factory=dict)  # model element → path and line
    findings: list[tuple[str, int, str]] = field(default_factory=list)


class Parser:
    """ScriptDom's parser of SQL Server 2019. A text that occurs in several sets is parsed once."""

    def __init__(self, script_dom: Any) -> None:
        from Newtonsoft.Json import JsonSerializerSettings, NullValueHandling, TypeNameHandling
        from Newtonsoft.Json.Converters import StringEnumConverter

        self._parser = script_dom.TSql150Parser(True)
        self._settings = JsonSerializerSettings()
        self._settings.NullValueHandling = NullValueHandling.Ignore
        self._settings.TypeNameHandling = TypeNameHandling.Objects
        self._settings.Converters.Add(StringEnumConverter())
        self._settings.ContractResolver = _contracts(script_dom)
        self._parsed: dict[str, tuple[Node | None, list[tuple[int, str]]]] = {}

    def parse(self, text: str) -> tuple[Node | None, list[tuple[int, str]]]:
        """The tree of a batch, None where it has syntax errors, and the line and message of each of them."""
        from Newtonsoft.Json import JsonConvert
        from System.IO import StringReader

        if text not in self._parsed:
            tree, errors = self._parser.Parse(StringReader(text), None)
            said = [(error.Line, error.Message) for error in errors]
            node = None if said else json.loads(JsonConvert.SerializeObject(tree, self._settings), object_hook=Node)
            self._parsed[text] = node, said
        return self._parsed[text]


def _contracts(script_dom: Any) -> Any:
    """How Newtonsoft.Json writes the classes of ScriptDom."""
    import clr
    from Newtonsoft.Json.Serialization import DefaultContractResolver

    resolver = DefaultContractResolver()
    base = clr.GetClrType(script_dom.TSqlFragment)
    for each in base.Assembly.GetExportedTypes():
        if base.IsAssignableFrom(each) and not each.IsAbstract:
            properties = resolver.ResolveContract(each).Properties
            for name in LEFT_OUT:
                properties.GetClosestMatchProperty(name).Ignored = True
    return resolver


def start_dotnet(assemblies: str, dotnet: str, config: str) -> Any:
    """Starts the runtime and loads the assemblies; returns the module of ScriptDom's classes."""
    import clr_loader
    from pythonnet import set_runtime

    set_runtime(clr_loader.get_coreclr(runtime_config=config, dotnet_root=dotnet))
    import clr

    wanted = (
        "Newtonsoft.Json",
        *(f"Microsoft.SqlServer.{name}" for name in ("TransactSql.ScriptDom", "Dac", "Dac.Extensions")),
    )
    for name in wanted:
        clr.AddReference(str(Path(assemblies) / name))
    from Microsoft.SqlServer.TransactSql import ScriptDom

    return ScriptDom


def check_set(parser: Parser, batches: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    """Parses and compiles batches as one database; returns path, line and message of each finding."""
    found = Found()
    parsed = []
    for batch in batches:
        tree, errors = parser.parse(batch["text"])
        found.findings += [(batch["path"], batch["line"] + line - 1, f"syntax: {message}") for line, message in errors]
        if tree is not None:
            parsed.append((batch, tree))
    known = _catalog_names(parsed)
    definitions = []
    for batch, tree in parsed:
        wrong = [(batch["path"], _line(batch, node), said) for node, said in undeclared(tree)]
        found.findings += wrong
        made = [(text, batch["path"], _line(batch, node)) for text, node in _definitions(batch, tree, known, found)]
        definitions += [] if wrong else made
    model = _build(definitions, found)
    for message in model.Validate():
        if not OPEN_ENDED.search(message.Message):
            found.findings.append(_place(f"{message.Prefix}{message.Number}: {message.Message}", found))
    model.Dispose()
    for batch, tree in parsed:
        found.findings += [(batch["path"], _line(batch, node), said) for node, said in misfits(tree, found.signatures)]
    ruled = [Batch(batch["path"], batch["line"], batch["text"], tree) for batch, tree in parsed if batch["ruled"]]
    found.findings += check_rules(ruled, [tree for _, tree in parsed])
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


def _definitions(batch: dict[str, Any], tree: Node, known: set[str], found: Found) -> Iterator[tuple[str, Node]]:
    """The definitions in a batch, each as text for the model; what stands loose becomes a procedure's body."""
    statements = [s for b in tree.Batches for s in b.Statements]
    if len(statements) == 1 and MODULE.fullmatch(kind(statements[0])):
        name = found.signatures.remember(statements[0])
        if name is not None:
            found.places[name] = (batch["path"], _line(batch, statements[0]))
        yield re.sub(r"(?i)^CREATE\s+OR\s+ALTER\b", "CREATE", _text(batch, statements[0], known)), statements[0]
        return
    loose = [s for s in statements if kind(s) not in DEFINITIONS]
    for statement in statements:
        if kind(statement) in DEFINITIONS:
            if kind(statement) == "CreateTableStatement":
                found.places[full_name(statement.SchemaObjectName)] = (batch["path"], _line(batch, statement))
            yield _text(batch, statement, known), statement
    indexes: set[str] = set()
    for number, node in enumerate(n for s in loose for n in walk(s) if kind(n) in NESTED):
        rename = None
        if kind(node) == "CreateTableStatement":
            if node.SchemaObjectName.SchemaIdentifier is None:  # a temporary table
                continue
            found.places[full_name(node.SchemaObjectName)] = (batch["path"], _line(batch, node))
        if kind(node) == "CreateIndexStatement":
            rename = node.Name if node.Name.Value in indexes else None
            indexes.add(node.Name.Value)
            name = f"{node.Name.Value}~{number}" if rename else node.Name.Value
            found.places[f"{full_name(node.OnName)}.[{name}]"] = (batch["path"], _line(batch, node))
        yield _text(batch, node, known, rename, number), node
    if loose:
        name = f"{batch['path']}~{batch['line']}"
        found.places[f"[{CATALOG}].[{name}]"] = (batch["path"], batch["line"])
        body = "\n".join(_text(batch, s, known) for s in loose)
        yield f"CREATE PROCEDURE [{CATALOG}].[{name}] AS\n{body}", loose[0]


def _text(batch: dict[str, Any], node: Node, known: set[str], rename: Node | None = None, number: int = 0) -> str:
    """A node's text, with sys.x as [sys~].x where server_catalog.sql declares it, and one name in it made unique."""
    text = node.text(batch["text"])
    edits = []
    if rename is not None:
        start = rename.StartOffset - node.StartOffset
        edits.append((start, start + rename.FragmentLength, f"[{rename.Value}~{number}]"))
    if OF_SYS.search(text):
        code = [token for token in tokens(text, "sqlserver") if token.kind == "code"]
        for match in OF_SYS.finditer(text):
            if match[1].lower() in known and any(token.start <= match.start() < token.end for token in code):
                edits.append((match.start(), match.end(), f"[{CATALOG}]"))
    for start, end, instead in sorted(edits, reverse=True):
        text = text[:start] + instead + text[end:]
    return text


def _catalog_names(parsed: list[tuple[dict[str, Any], Node]]) -> set[str]:
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


def _line(batch: dict[str, Any], node: Node) -> int:
    line: int = batch["line"] + node.StartLine - 1
    return line


def main() -> None:
    """Reads {"runtime": [...], "sets": [[batch, ...], ...]}; writes a list of findings per set."""
    request = json.load(sys.stdin)
    parser = Parser(start_dotnet(*request["runtime"]))
    json.dump([check_set(parser, batches) for batches in request["sets"]], sys.stdout)


if __name__ == "__main__":
    main()
