"""The little of SQL's lexical grammar that a deployment needs: split a script into batches, fill in names.

Pure functions over text. Both dialects share strings, quoted identifiers and (nested) comments; T-SQL adds
`[brackets]`, PostgreSQL adds `$tag$ bodies $tag$` and E'strings'. Nothing here understands a statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from textwrap import indent
from typing import NamedTuple

__all__ = [
    "PLACEHOLDER",
    "SqlBatch",
    "SqlTextError",
    "code_line",
    "code_only",
    "expand",
    "render",
    "split_batches",
    "tokens",
]

_COMMENT = r"(?P<comment>--[^\n]*|/\*(?:[^*/]|\*(?!/)|/(?!\*))*+\*/)"
_NAME = r'"(?:[^"]|"")*+"'
_STRING = r"'(?:[^']|'')*+'"
_BODY = r"(?<![\w$])(?P<tag>\$(?:[^\W\d]\w*)?\$)"


def _grammar(opener: str, rest: str) -> re.Pattern[str]:
    """Return the pattern of one token: a comment without another one in it, `rest`, or code up to the next opener."""
    return re.compile(rf"{_COMMENT}|{rest}|(?P<code>(?:[^-/'\"\[$]++|(?!{opener}).)++)", re.DOTALL)


_SQLSERVER = _grammar(r"--|/\*|'|\"|\[", rf"(?P<string>{_STRING})|(?P<identifier>{_NAME}|\[(?:[^\]]|\]\])*+\])")
_POSTGRESQL = rf"(?P<string>(?<=[eE])(?<![\w$][eE])'(?:[^'\\]|''|\\.)*+'|(?:(?<![eE])|(?<=[\w$][eE])){_STRING})|(?P<identifier>{_NAME})"  # noqa: E501
#: by engine, and whether bodies are tokens: the pattern of one token. What it does not match is a nested comment, or
#: has no end.
_TOKEN = {
    ("sqlserver", True): _SQLSERVER,
    ("sqlserver", False): _SQLSERVER,
    ("postgresql", True): _grammar(
        r"--|/\*|'|\"|(?<![\w$])\$(?:[^\W\d]\w*)?\$", rf"{_POSTGRESQL}|(?P<body>{_BODY}.*?(?P=tag))"
    ),
    ("postgresql", False): _grammar(r"--|/\*|'|\"", _POSTGRESQL),
}
_OPENER = re.compile(r"/\*|['\"\[]|\$\w*\$")
_COMMENT_END = re.compile(r"/\*|\*/")
QUOTED_NAME = {"sqlserver": re.compile(r"\[(?:[^\]]|\]\])*\]"), "postgresql": re.compile(r'"(?:[^"]|"")*"')}
#: in a text whose comments and quotes are blank
_GO = re.compile(r"^[ \t]*(GO)[ \t]*(\d+)?[ \t]*(\0*)$", re.IGNORECASE | re.MULTILINE)
_DEPTH_OR_END = re.compile(r"[();]")
PLACEHOLDER = re.compile(r"\{([a-z][a-z_]*)\}")
FRAGMENT = re.compile(r"^([ \t]*)\{([a-z][a-z_]*)\}[ \t]*$", re.MULTILINE)
# Already quoted by the dialect, or a type's name: they may stand in bare code.
QUOTED_PLACEHOLDERS = frozenset(
    {
        "correlation_type",
        "delayed_table",
        "leased_table",
        "queue_table",
        "saga_table",
        "subscription_table",
        "transitional_type",
    }
)


class SqlTextError(ValueError):
    """The text of a script is malformed; `line` counts from 1."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")
        self.line, self.problem = line, problem


class Token(NamedTuple):
    """A stretch of text: code, comment, string, identifier (in quotes) or body (between dollar quotes)."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True)
class SqlBatch:
    """What goes to the server in one piece. `number` counts from 1, `line` is that of its first character."""

    number: int
    line: int
    text: str


#: Token(…) without a frame of Python: a deployment has 20,000 of them
_token = partial(tuple.__new__, Token)


def tokens(text: str, engine: str, bodies: bool = True) -> list[Token]:
    """Cut text into tokens without a gap. `bodies` False reads PostgreSQL's dollar quotes as code.

    Raises SqlTextError for a comment, string, identifier or body without an end.
    """
    match, found, position = _TOKEN[engine, bodies].match, [], 0
    while position < len(text):
        piece = match(text, position)
        kind, end = (
            (str(piece.lastgroup), piece.end()) if piece else ("comment", _end_of_nested_comment(text, position))
        )
        found.append(_token(("body" if kind == "tag" else kind, position, end)))
        position = end
    return found


def _end_of_nested_comment(text: str, start: int) -> int:
    depth = 0
    opener = _OPENER.match(text, start)
    for found in _COMMENT_END.finditer(text, start) if text.startswith("/*", start) else ():
        depth += 1 if found.group() == "/*" else -1
        if depth == 0:
            return found.end()
    said = opener.group() if opener else text[start]
    what = {"/*": "the comment"}.get(said, f"the body {said}" if said.startswith("$") else f"the quote {said}")
    raise SqlTextError(_line(text, start), f"{what} has no end")


def _blanked(text: str, pieces: Collection[Token], *kinds: str) -> str:
    """Return the text with NUL characters in the place of its tokens of these kinds, so that every position stays."""
    return "".join(["\0" * (end - start) if kind in kinds else text[start:end] for kind, start, end in pieces])


def code_only(text: str, engine: str = "sqlserver") -> str:
    """Return SQL without its comments."""
    return "".join([text[start:end] for kind, start, end in tokens(text, engine) if kind != "comment"])


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def split_batches(text: str, engine: str) -> tuple[SqlBatch, ...]:
    """Split a script into what is sent at once: batches between GO lines, or single PostgreSQL statements.

    >>> [batch.line for batch in split_batches("SELECT 1\\nGO\\nSELECT 'a\\nGO\\n'\\nGO\\n", "sqlserver")]
    [1, 3]
    """
    pieces = tokens(text, engine)
    code = _blanked(text, pieces, "comment", "string", "identifier", "body")
    visible = _blanked(text, pieces, "comment")
    batches: list[SqlBatch] = []
    start = 0
    for end, following in [
        *(_go_lines(text, code) if engine == "sqlserver" else _semicolons(code)),
        (len(text), len(text)),
    ]:
        if visible[start:end].strip("; \t\r\n\0"):
            # A T-SQL batch keeps its blank lines: the server counts them.
            first = end - len(text[start:end].lstrip()) if engine == "postgresql" else start
            batches.append(SqlBatch(len(batches) + 1, _line(text, first), text[first:end].rstrip()))
        start = following
    return tuple(batches)


def _go_lines(text: str, code: str) -> list[tuple[int, int]]:
    """Return where batches end, and where the next ones start. Only a comment to the line's end may follow GO."""
    found = [each for each in _GO.finditer(code) if not each[3] or text.startswith("--", each.start(3))]
    counted = next((each for each in found if each[2]), None)
    if counted:
        raise SqlTextError(_line(code, counted.start(1)), "GO with a count is not supported: write the batch once")
    return [(each.start(), min(each.end() + 1, len(code))) for each in found]


def _semicolons(code: str) -> list[tuple[int, int]]:
    """Return where statements end, and where the next ones start."""
    depth, found = 0, []
    for each in _DEPTH_OR_END.finditer(code):
        depth += {"(": 1, ")": -1}.get(each.group(), 0)
        if each.group() == ";" and depth == 0:
            found.append((each.end(), each.end()))
    return found


def code_line(batch: SqlBatch, engine: str) -> int:
    """Return the line in the file of a batch's first word, past blank lines and comments."""
    visible = _blanked(batch.text, tokens(batch.text, engine), "comment")
    first = len(visible) - len(visible.lstrip(" \t\r\n\0"))
    return batch.line + (_line(batch.text, first) - 1 if first < len(visible) else 0)


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
    for kind, start, end in tokens(text, engine, bodies=False):
        part = text[start:end]
        if "{" in part and PLACEHOLDER.search(part):
            part = _fill(part, kind, partial(_value, names, kind, _line(text, start)), engine)
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
