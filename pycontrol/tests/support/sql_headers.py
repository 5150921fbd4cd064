"""Read the .sql files of procedures: name, parameters, result columns, header comment, body.

`headers` returns one `Header` per procedure of an engine. Only files in the form of the house style can be read; for
any other file `read_header` raises an error with its path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rowpost.database.sql_folder import sql_folder
from rowpost.deploy.sql_text import tokens

__all__ = ["ROOTS", "Column", "Header", "files", "headers", "read_header", "split_commas", "without_comments"]

#: the folder of each engine's .sql files
ROOTS = {"sqlserver": sql_folder(), "postgresql": sql_folder() / "postgresql"}

SQLSERVER_HEAD = re.compile(
    r"SET ANSI_NULLS ON;\nSET QUOTED_IDENTIFIER ON;\nGO\nCREATE OR ALTER (?P<kind>PROCEDURE|FUNCTION) rowpost\."
    r"(?P<name>\w+|\[\w+:\{(?:queue|saga|subscription)_key\}\])(?P<parameters>.*?)(?P<options>\nWITH EXECUTE AS 'rowpost_internal')?\nAS\n/\*\n(?P<comment>.*?)\n\*/\n(?P<body>.*)\nGO\n",
    re.DOTALL,
)
POSTGRESQL_HEAD = re.compile(
    r"CREATE OR REPLACE (?P<kind>FUNCTION) rowpost\.(?P<name>\w+|\"\w+:\{(?:queue|saga|subscription)_key\}\")\((?P<parameters>.*?)\)"
    r" RETURNS (?P<returns>TABLE \(.*?\)|\w+)\nLANGUAGE (?:plpgsql|sql)(?P<options>.*?)\nAS \$rowpost\$\n"
    r"/\*\n(?P<comment>.*?)\n\*/\n(?P<body>.*)\n\$rowpost\$;\n",
    re.DOTALL,
)
PARAMETER = {
    "sqlserver": re.compile(r"@(\w+) (\w+(?:\([^)]*\))?)( = NULL)?( OUTPUT)?"),
    "postgresql": re.compile(r"p_(\w+) ([\w\[\]]+)( DEFAULT NULL)?()"),
}
#: a T-SQL procedure returns the rows of its last SELECT that assigns no variable, or of an OUTPUT without INTO
RESULT = re.compile(r"^(?:SELECT(?: TOP \([^)]*\))?|OUTPUT)(?P<list>\s.*?)(?=^FROM\b|^OPTION\b|^INTO\b|;)", re.M | re.S)


@dataclass(frozen=True)
class Column:
    """A parameter or result column. `optional` says whether it has a default."""

    name: str
    type: str
    optional: bool = False


@dataclass(frozen=True)
class Header:
    """The file of one procedure. `result` is None if the procedure returns the rows of another one."""

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
        """Return the name without quotes and without the key of a queue or saga."""
        return re.sub(r":\{\w+_key\}|[\[\]\"]", "", self.name)


def files(engine: str) -> list[Path]:
    """Return the files of an engine's procedures, sorted."""
    return sorted(ROOTS[engine].glob("procedures/*/*.sql"))


@cache
def headers(engine: str) -> dict[str, Header]:
    """Return the headers of an engine's procedures by feature and name: `queue/send_message`."""
    return {f"{path.parent.name}/{path.stem}": read_header(path, engine) for path in files(engine)}


def read_header(path: Path, engine: str) -> Header:
    """Read the file of one procedure.

    Raises:
        ValueError: the file is not one procedure in the form of the house style.
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
    """Replace each comment by a blank, also inside the function bodies of PostgreSQL."""
    pieces = tokens(text, engine, bodies=False)
    return "".join(" " if piece.kind == "comment" else text[piece.start : piece.end] for piece in pieces)


def split_commas(text: str) -> list[str]:
    """Split at the commas outside of brackets. Blank entries are left out."""
    entries, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            entries.append(text[start:position])
            start = position + 1
    return [entry for entry in [*entries, text[start:]] if entry.strip()]
