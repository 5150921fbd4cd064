"""Links between the repository's pages lead to files and headings that exist."""

import re
from pathlib import Path

from tests.support.documents import ROOT, pages

LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path) -> list[str]:
    found = []
    for path, anchor in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        target = (page.parent / path) if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(f"{path}#{anchor}" if anchor else path)
    return found


def test_every_link_of_a_page_leads_somewhere():
    read = [*pages(), ROOT / "benchmarks" / "README.md", ROOT / "models" / "README.md"]

    assert {page.relative_to(ROOT).as_posix(): found for page in read if (found := broken(page))} == {}


def test_a_link_to_a_missing_file_or_heading_is_found(tmp_path: Path):
    (tmp_path / "a.md").write_text("# One thing\n[x](b.md) [y](#two) [z](#one-thing)")

    assert broken(tmp_path / "a.md") == ["b.md", "#two"]
