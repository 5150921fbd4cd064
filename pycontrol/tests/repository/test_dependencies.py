"""The page of dependencies names what an installation brings, and no other package."""

import re
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "dependencies.md").read_text(encoding="utf-8")


def brought_by(name: str) -> set[str]:
    """The packages that an installation of a package brings on this system, and those that they bring."""
    seen: set[tuple[str, str]] = set()
    left = [(name, "")]
    while left:
        package, extra = left.pop()
        if (package, extra) in seen:
            continue
        seen.add((package, extra))
        for wanted in map(Requirement, distribution(package).requires or ()):
            if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
                left += [(canonicalize_name(wanted.name), each) for each in {"", *wanted.extras}]
    return {package for package, _ in seen}


def named(part: str) -> set[str]:
    """The packages in the first column of the tables of a part of the page."""
    cells = re.findall(r"^\| (`.*?) \|", part, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_the_page_names_every_package_that_an_installation_brings():
    brought = brought_by("rowpost") - {"rowpost"}

    assert named(PAGE.partition("## Extras")[0]) == brought | {
        "typing-extensions"
    }  # psycopg needs it below Python 3.13


def test_the_page_names_every_extra_and_what_it_adds():
    extras = {"sqlserver", "archive", "spark", "avro", "telemetry", "metrics", "reload", "dashboard", "dev"}
    declared = set(distribution("rowpost").metadata.get_all("Provides-Extra"))
    rows = dict(re.findall(r"^\| `rowpost\[(\w+)\]` \| (.*?) \|", PAGE, re.MULTILINE))

    assert declared - {"postgresql", "embedded"} == extras == set(rows)
    for extra in extras - {"dev"}:
        added = {
            Requirement(each).name for each in distribution("rowpost").requires if each.endswith(f'extra == "{extra}"')
        }
        assert added - {"rowpost"} <= set(re.findall(r"`([^`]+)`", rows[extra])), extra
