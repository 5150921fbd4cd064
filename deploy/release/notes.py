"""Print the notes of a release: `python deploy/release/notes.py v0.3.0`, which needs no package.

The tag must name the version of pyproject.toml, and CHANGELOG.md must have a dated section of it that is not empty.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

__all__ = ["NotReady", "notes"]

ROOT = Path(__file__).parents[2]


class NotReady(Exception):
    """The version cannot be released. The text says what is missing."""


def notes(tag: str, root: Path = ROOT) -> str:
    """Return the section of CHANGELOG.md about a tag such as v0.3.0, without its heading.

    Raises:
        NotReady: the tag names another version than pyproject.toml, or the section is missing, has no date or is empty.
    """
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if tag != f"v{version}":
        raise NotReady(
            f"The tag {tag} does not name the version of pyproject.toml, which is {version}. Tag the commit with v{version}."
        )
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(
        rf"^## {re.escape(version)}( - \d{{4}}-\d\d-\d\d)?\n(.*?)(?=^## |\Z)", changes, re.MULTILINE | re.DOTALL
    )
    if section is None or section[1] is None:
        raise NotReady(
            f"CHANGELOG.md has no section with a date for {version}: write '## {version} - YYYY-MM-DD' above its changes."
        )
    if not section[2].strip():
        raise NotReady(f"The section {version} of CHANGELOG.md is empty: say what changes for users.")
    return section[2].strip() + "\n"


if __name__ == "__main__":
    try:
        print(notes(sys.argv[1] if len(sys.argv) > 1 else ""), end="")
    except NotReady as error:
        sys.exit(str(error))
