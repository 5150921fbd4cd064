"""The code in the repository's pages: fenced blocks, code spans, and the calls of rowpost in both."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "Block", "blocks", "calls", "calls_of_script", "pages", "typed_lines"]

ROOT = Path(__file__).resolve().parents[3]
#: a block may be indented, as part of a list
_BLOCK = re.compile(r"^( *)```(\w*)(?: file=(\S+))?\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_ASSIGNMENT = re.compile(r"^(?:[A-Z_]+=\S* +)+")
_END = {"|", "||", "&&", ";", ">", ">/dev/null", "<", "&", "do", "2>&1"}


@dataclass(frozen=True)
class Block:
    """A fenced block. `number` counts the blocks of its page from 1; `file` is the file name after the language.

    A file below `examples/` is one of the repository, and the block shows a part of it.
    """

    page: str
    number: int
    language: str
    file: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.number}"

    @property
    def example(self) -> Path | None:
        """Return the file of the repository that the block shows a part of."""
        return ROOT / self.file if self.file.startswith("examples/") else None


def pages() -> list[Path]:
    """The pages that show commands or code to readers."""
    named = ("README.md", "CONTRIBUTING.md", "deploy/runbook.md")
    examples = sorted((ROOT / "examples").glob("*/README.md"))
    return [*(ROOT / name for name in named), *examples, *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in their order."""
    name = page.relative_to(ROOT).as_posix()
    found = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [
        Block(name, number, language, file, textwrap.dedent(text))
        for number, (_, language, file, text) in enumerate(found, start=1)
    ]


def typed_lines(block: Block) -> list[str]:
    """The lines that a reader types: after the prompt in a console block, all lines of an sh block but comments."""
    lines = block.text.splitlines()
    if block.language == "console":
        return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [line for line in lines if not line.startswith("#")] if block.language == "sh" else []


def calls(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Every call of rowpost in the page's blocks and code spans: where it stands, and its arguments."""
    text = page.read_text(encoding="utf-8")
    for block in blocks(page):
        for line in typed_lines(block):
            for part in re.split(r"\|\|?|&&|;|\$\(", line):
                yield from _call(block.name, part)
    for span in _SPAN.findall(_BLOCK.sub("", text)):
        yield from _call(page.relative_to(ROOT).as_posix(), span)


def calls_of_script(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Every call of rowpost in a makefile, a unit of systemd or a Containerfile."""
    for text in re.findall(
        r"(?:/bin/|\$\(BIN\)/|^#\s+)(rowpost [^|\n]*)", path.read_text(encoding="utf-8"), re.MULTILINE
    ):
        text = re.sub(r"\$\((?:ARGS|YES)\)", "", text).replace("$(ENV)", "local")
        yield from _call(path.name, text)


def _call(where: str, text: str) -> Iterator[tuple[str, list[str]]]:
    text = _ASSIGNMENT.sub("", text.strip().removeprefix("until "))
    if not text.startswith("rowpost "):
        return
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        words = text.split()
    end = next((number for number, word in enumerate(words) if word in _END), len(words))
    yield f"{where}: {text}", words[1:end]
