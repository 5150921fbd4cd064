"""What the .sql files of procedures say of themselves: name, parameters, result, header comment, errors.

Reads the house style's forms and nothing else: a file that is written otherwise is refused, by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rowpost.deploy.sql_text import tokens

__all__ = ["Column", "Header", "read_header", "split_commas", "without_comments"]

SQLSERVER_HEAD = re.compile(
    r"SET ANSI_NULLS ON;\nSET QUOTED_IDENTIFIER ON;\nGO\nCREATE OR ALTER (?P<kind>PROCEDURE|FUNCTION) rowpost\."
    r"(?P<name>\w+|\[\w+:\{(?:queue|saga)_key\}\])(?P<parameters>.*?)(?P<options>\nWITH EXECUTE AS OWNER)?\nAS\n/\*\n(?P<comment>.*?)\n\*/\n(?P<body>.*)\nGO\n",
    re.DOTALL,
)
POSTGRESQL_HEAD = re.compile(
    r"CREATE OR REPLACE (?P<kind>FUNCTION) rowpost\.(?P<name>\w+|\"\w+:\{(?:queue|saga)_key\}\")\((?P<parameters>.*?)\)"
    r" RETURNS (?P<returns>TABLE \(.*?\)|\w+)\nLANGUAGE (?:plpgsql|sql)(?P<options>.*?)\nAS \$rowpost\$\n"
    r"/\*\n(?P<comment>.*?)\n\*/\n(?P<body>.*)\n\$rowpost\$;\n",
    re.DOTALL,
)
PARAMETER = {
    "sqlserver": re.compile(r"@(\w+) (\w+(?:\([^)]*\))?)( = NULL)?( OUTPUT)?"),
    "postgresql": re.compile(r"p_(\w+) ([\w\[\]]+)( DEFAULT NULL)?()"),
}
#: the rows that a T-SQL procedure returns: its last SELECT that assigns no variable, or an OUTPUT without INTO
RESULT = re.compile(r"^(?:SELECT(?: TOP \([^)]*\))?|OUTPUT)(?P<list>\s.*?)(?=^FROM\b|^OPTION\b|^INTO\b|;)", re.M | re.S)


@dataclass(frozen=True)
class Column:
    """A parameter or result column. `optional`: it has a default."""

    name: str
    type: str
    optional: bool = False


@dataclass(frozen=True)
class Header:
    """One procedure's file. `result` is None where another procedure's rows are passed on."""

    engine: str
    kind: str
    name: str
    parameters: tuple[Column, ...]
    result: tuple[Column, ...] | None
    options: str
    comment: str
    body: str

    @property
    def object_name(self) -> str:
        """The name without quotes and without the key of a queue or saga."""
        return re.sub(r":\{\w+_key\}|[\[\]\"]", "", self.name)


def read_header(path: Path, engine: str) -> Header:
    """Reads a procedure's file.

    Raises:
        ValueError: it is not one procedure in the house style's form.
    """
    text = path.read_text(encoding="utf-8")
    found = (SQLSERVER_HEAD if engine == "sqlserver" else POSTGRESQL_HEAD).fullmatch(text)
    if not found:
        raise ValueError(f"{path}: not one procedure in the form of the house style")
    parts = found.groupdict()
    parameters = tuple(_parameters(parts["parameters"], engine))
    if engine == "sqlserver":
        result = _selected(parts["body"]) if parts["kind"] == "PROCEDURE" else ()
    else:
        result = tuple(_returned(parts["returns"]))
    return Header(
        engine,
        parts["kind"],
        parts["name"],
        parameters,
        result,
        parts.get("options") or "",
        parts["comment"],
        parts["body"],
    )


def _parameters(text: str, engine: str) -> Iterator[Column]:
    bare = without_comments(text, engine)
    for entry in split_commas(
        re.sub(r"^\s*\(|\)\s*RETURNS.*$", "", bare, flags=re.S) if engine == "sqlserver" else bare
    ):
        found = PARAMETER[engine].fullmatch(" ".join(entry.split()))
        if not found:
            raise ValueError(f"not a parameter in the house style's form: {entry.strip()}")
        yield Column(found[1], found[2], bool(found[3]))


def _selected(body: str) -> tuple[Column, ...] | None:
    code = without_comments(body, "sqlserver")
    if re.search(r"EXEC sys\.sp_executesql\s+@call\b|^EXEC rowpost\.\[\w+:\{queue_key\}\][^;]*;\s*\Z", code, re.M):
        return None
    lists = [match for match in RESULT.finditer(code) if not re.search(r"@\w+ = ", match["list"])]
    lists = [match for match in lists if not code.startswith("INTO", match.end())]
    lists = [match for match in lists if not re.search(r"^INSERT[^;]*\Z", code[: match.start()], re.M)]
    if not lists:
        return ()
    names = [re.split(r"\bAS\s+|\.", entry.strip())[-1].strip("[]") for entry in split_commas(lists[-1]["list"])]
    return tuple(Column(name, "") for name in names)


def _returned(text: str) -> Iterator[Column]:
    if text != "void" and text.startswith("TABLE"):
        for entry in split_commas(text.removeprefix("TABLE (").removesuffix(")")):
            name, kind = entry.split(maxsplit=1)
            yield Column(name, kind.strip())


def without_comments(text: str, engine: str) -> str:
    """The text with a blank for each comment, looking into PostgreSQL's bodies too."""
    pieces = tokens(text, engine, bodies=False)
    return "".join(" " if piece.kind == "comment" else text[piece.start : piece.end] for piece in pieces)


def split_commas(text: str) -> list[str]:
    """Splits at commas that stand in no bracket; no entries for blank text."""
    entries, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            entries.append(text[start:position])
            start = position + 1
    return [entry for entry in [*entries, text[start:]] if entry.strip()]
