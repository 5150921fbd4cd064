"""The little of SQL's lexical grammar that a deployment needs: split a script into batches, fill in names.

Pure functions over text. Both dialects share strings, quoted identifiers and (nested) comments; T-SQL adds
`[brackets]`, PostgreSQL adds `$tag$ bodies $tag$` and E'strings'. Nothing here understands a statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from textwrap import indent

__all__ = ["PLACEHOLDER", "Batch", "SqlTextError", "code_line", "expand", "render", "split_batches", "tokens"]

OPENERS = {
    "sqlserver": re.compile(r"--|/\*|'|\"|\["),
    "postgresql": re.compile(r"--|/\*|'|\"|\$(?:[^\W\d]\w*)?\$"),
}
QUOTED_NAME = {"sqlserver": re.compile(r"\[(?:[^\]]|\]\])*\]"), "postgresql": re.compile(r'"(?:[^"]|"")*"')}
CLOSERS = {"'": "'", '"': '"', "[": "]"}
GO = re.compile(r"^[ \t]*(GO)[ \t]*(\d+)?[ \t]*(?:--[^\n]*)?$", re.IGNORECASE | re.MULTILINE)
PLACEHOLDER = re.compile(r"\{([a-z][a-z_]*)\}")
FRAGMENT = re.compile(r"^([ \t]*)\{([a-z][a-z_]*)\}[ \t]*$", re.MULTILINE)
# Already quoted by the dialect, or a type's name: they may stand in bare code.
QUOTED_PLACEHOLDERS = frozenset({"correlation_type", "delayed_table", "queue_table", "saga_table", "subscription_table", "transitional_type"})


class SqlTextError(ValueError):
    """The text of a script is malformed; `line` counts from 1."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")
        self.line, self.problem = line, problem


@dataclass(frozen=True)
class Token:
    """A stretch of text: code, comment, string, identifier (in quotes) or body (between dollar quotes)."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True)
class Batch:
    """What goes to the server in one piece. `number` counts from 1, `line` is that of its first character."""

    number: int
    line: int
    text: str


def tokens(text: str, engine: str, bodies: bool = True) -> Iterator[Token]:
    """Cut text into tokens without a gap. `bodies` False looks into PostgreSQL's dollar quotes as if they were code.

    Raises SqlTextError for a comment, string, identifier or body without an end.
    """
    position = code = 0
    while match := OPENERS[engine].search(text, position):
        opener, start = match.group(), match.start()
        if opener.startswith("$") and (not bodies or _inside_word(text, start)):
            position = start + 1
            continue
        if code < start:
            yield Token("code", code, start)
        kind, end = _token_at(text, start, opener, engine)
        yield Token(kind, start, end)
        position = code = end
    if code < len(text):
        yield Token("code", code, len(text))


def _token_at(text: str, start: int, opener: str, engine: str) -> tuple[str, int]:
    if opener == "--":
        end = text.find("\n", start)
        return "comment", len(text) if end < 0 else end
    if opener == "/*":
        return "comment", _end_of_comment(text, start)
    if opener.startswith("$"):
        end = text.find(opener, start + len(opener))
        if end < 0:
            raise SqlTextError(_line(text, start), f"the body {opener} has no end")
        return "body", end + len(opener)
    escapes = engine == "postgresql" and opener == "'" and _is_escape_string(text, start)
    return "string" if opener == "'" else "identifier", _end_of_quote(text, start, opener, escapes)


def _end_of_comment(text: str, start: int) -> int:
    depth = 0
    for match in re.compile(r"/\*|\*/").finditer(text, start):
        depth += 1 if match.group() == "/*" else -1
        if depth == 0:
            return match.end()
    raise SqlTextError(_line(text, start), "the comment has no end")


def _end_of_quote(text: str, start: int, opener: str, escapes: bool) -> int:
    closer = CLOSERS[opener]
    position = start + 1
    while position < len(text):
        if escapes and text[position] == "\\":
            position += 2
        elif text[position] != closer:
            position += 1
        elif text[position + 1 : position + 2] == closer:
            position += 2
        else:
            return position + 1
    raise SqlTextError(_line(text, start), f"the quote {opener} has no end")


def _is_escape_string(text: str, start: int) -> bool:
    return start > 0 and text[start - 1] in "eE" and not _inside_word(text, start - 1)


def _inside_word(text: str, position: int) -> bool:
    return position > 0 and (text[position - 1].isalnum() or text[position - 1] in "_$")


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def split_batches(text: str, engine: str) -> tuple[Batch, ...]:
    """Split a script into what is sent at once: batches between GO lines, or single PostgreSQL statements.

    >>> [batch.line for batch in split_batches("SELECT 1\\nGO\\nSELECT 'a\\nGO\\n'\\nGO\\n", "sqlserver")]
    [1, 3]
    """
    pieces = list(tokens(text, engine))
    cuts = list(_go_lines(text, pieces) if engine == "sqlserver" else _semicolons(text, pieces))
    found: list[tuple[int, int]] = []
    start = 0
    for end, following in [*cuts, (len(text), len(text))]:
        if any(_has_code(text, piece, start, end) for piece in pieces):
            found.append((start, end))
        start = following
    batches = []
    for number, (start, end) in enumerate(found, 1):
        # A T-SQL batch keeps its blank lines: the server counts them.
        blank = len(text[start:end]) - len(text[start:end].lstrip()) if engine == "postgresql" else 0
        batches.append(Batch(number, _line(text, start + blank), text[start + blank : end].rstrip()))
    return tuple(batches)


def _go_lines(text: str, pieces: list[Token]) -> Iterator[tuple[int, int]]:
    for match in GO.finditer(text):
        if any(piece.kind == "code" and piece.start <= match.start(1) < piece.end for piece in pieces):
            if match.group(2):
                raise SqlTextError(_line(text, match.start(1)), "GO with a count is not supported: write the batch once")
            yield match.start(), min(match.end() + 1, len(text))


def _semicolons(text: str, pieces: list[Token]) -> Iterator[tuple[int, int]]:
    depth = 0
    for piece in pieces:
        if piece.kind != "code":
            continue
        for position in range(piece.start, piece.end):
            depth += {"(": 1, ")": -1}.get(text[position], 0)
            if text[position] == ";" and depth == 0:
                yield position + 1, position + 1


def _has_code(text: str, piece: Token, start: int, end: int) -> bool:
    begin, finish = max(piece.start, start), min(piece.end, end)
    return begin < finish and piece.kind != "comment" and text[begin:finish].strip("; \t\r\n") != ""


def code_line(batch: Batch, engine: str) -> int:
    """Line in the file of a batch's first word, past blank lines and comments: what to name when nothing better is."""
    for piece in tokens(batch.text, engine):
        inside = batch.text[piece.start : piece.end]
        if piece.kind != "comment" and inside.strip():
            return batch.line + _line(batch.text, piece.start + len(inside) - len(inside.lstrip())) - 1
    return batch.line


def expand(text: str, fragments: Mapping[str, str]) -> str:
    """Replace each line that is only the placeholder of a fragment by the fragment, indented as that line.

    A fragment is SQL and may hold placeholders of its own: expand first, render afterwards. Other placeholders stay.

    >>> expand("BEGIN\\n    {work}\\nEND", {"work": "SELECT 1;\\nSELECT '{queue_name}';"})
    "BEGIN\\n    SELECT 1;\\n    SELECT '{queue_name}';\\nEND"
    """

    def fragment(found: re.Match[str]) -> str:
        return indent(fragments[found[2]].rstrip("\n"), found[1]) if found[2] in fragments else found[0]

    return FRAGMENT.sub(fragment, text)


def render(text: str, names: Mapping[str, str], engine: str) -> str:
    """Fill the placeholders of a template, each escaped for the quotes it stands in, nested ones too.

    >>> render("EXEC (N'x [a:{queue_key}]')", {"queue_key": "it's]"}, "sqlserver")
    "EXEC (N'x [a:it''s]]]')"

    Raises SqlTextError for an unknown placeholder and for a name in bare code.
    """
    filled = []
    for piece in tokens(text, engine, bodies=False):
        part = text[piece.start : piece.end]
        if PLACEHOLDER.search(part):
            part = _fill(part, piece.kind, partial(_value, names, piece.kind, _line(text, piece.start)), engine)
        filled.append(part)
    return "".join(filled)


def _value(names: Mapping[str, str], kind: str, line: int, match: re.Match[str]) -> str:
    name = match.group(1)
    line += match.string.count("\n", 0, match.start())
    if name not in names:
        raise SqlTextError(line, f"unknown placeholder {{{name}}}: known are {', '.join(sorted(names))}")
    if kind == "code" and name not in QUOTED_PLACEHOLDERS:
        raise SqlTextError(line, f"{{{name}}} stands outside quotes: put it into '...', \"...\" or [...]")
    return names[name]


def _fill(part: str, kind: str, value: Callable[[re.Match[str]], str], engine: str) -> str:
    if kind == "string":
        inner = part[1:-1].replace("''", "'")
        return "'" + "".join(_fill_string(inner, value, engine)).replace("'", "''") + "'"
    if kind == "identifier":
        closer = part[-1]
        return PLACEHOLDER.sub(lambda match: value(match).replace(closer, closer * 2), part)
    if kind == "comment":
        return PLACEHOLDER.sub(lambda match: _in_comment(value(match)), part)
    return PLACEHOLDER.sub(value, part)


def _fill_string(inner: str, value: Callable[[re.Match[str]], str], engine: str) -> Iterator[str]:
    """Return the content of a string literal: names within [..] or ".." keep that escaping, the rest is plain text."""
    position = 0
    for match in QUOTED_NAME[engine].finditer(inner):
        yield PLACEHOLDER.sub(value, inner[position : match.start()])
        yield _fill(match.group(), "identifier", value, engine)
        position = match.end()
    yield PLACEHOLDER.sub(value, inner[position:])


def _in_comment(value: str) -> str:
    return " ".join(value.split()).replace("*/", "* /").replace("/*", "/ *")
