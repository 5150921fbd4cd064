"""What a page shows of an example is in the example, line by line, and pages about examples show nothing else."""

import textwrap
from pathlib import Path

import pytest

from tests.support.documents import ROOT, blocks, pages

EXCERPTS = [block for page in pages() for block in blocks(page) if block.example]
#: guides whose code is that of examples
GUIDES = ("containers", "from-celery", "from-procrastinate", "your-own-session")
#: blocks of what readers type and see
TYPED = ("console", "sh", "text")


def is_in(excerpt: str, text: str) -> bool:
    """Whether a text has these lines, one after the other, at any indentation."""
    wanted, lines = excerpt.rstrip("\n").split("\n"), text.split("\n")
    length = len(wanted)
    starts = range(len(lines) - length + 1)
    return any(textwrap.dedent("\n".join(lines[start : start + length])).split("\n") == wanted for start in starts)


@pytest.mark.parametrize("block", EXCERPTS, ids=lambda block: block.name)
def test_an_excerpt_is_in_its_example(block):
    assert is_in(block.text, block.example.read_text(encoding="utf-8")), f"{block.name} is not in {block.file}"


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_about_examples_shows_only_what_they_contain(guide: str):
    page: Path = ROOT / "docs" / "guides" / f"{guide}.md"
    found = [block for block in blocks(page) if block.language not in TYPED]

    assert found
    assert [block.name for block in found if not block.example] == []


@pytest.mark.parametrize(
    ("excerpt", "is_one"),
    [
        ("b = 2\nc = 3\n", True),
        ("if d:\n    e = 4\n", True),
        ("b = 2\n", True),
        ("b = 2\nif d:\n", False),
        ("b =  2\n", False),
        ("e = 4\nf = 5\n", False),
    ],
)
def test_lines_that_are_changed_or_left_out_are_found(excerpt, is_one):
    text = "a = 1\nb = 2\nc = 3\nclass X:\n    if d:\n        e = 4\n"

    assert is_in(excerpt, text) is is_one
