"""Comments and pages cite only what a reader of the repository can open.

Numbers of documents outside of the repository are found by their form. A promise is cited by its key in
`docs/reference/behaviour.md`, a public document by its title.
"""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
DEAD = re.compile(
    r"\bseeds? 00\d|\breference [A-K]\d|\breference (?:section )?\d|\b(?:statements?|decisions?) \d|\bpain #\d|[(,] ?[A-K]\d{1,2}[),;]",
    re.IGNORECASE,
)
#: not citations: file, and the text that contains the match
NO_CITATION = {
    ("pycontrol/tests/deploy/test_registry.py", 'match="statement 2"'),
}
FOLDERS = (".github", "benchmarks", "deploy", "docs", "examples", "models", "pycontrol", "sql")
SUFFIXES = (".py", ".pml", ".sql", ".yml", ".md", ".toml", ".service", "Makefile")


def cited(text: str, path: str) -> list[str]:
    """Return the lines that cite a document by a number."""
    return [
        f"{path}:{number}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), 1)
        if DEAD.search(line) and not any(path == file and part in line for file, part in NO_CITATION)
    ]


def texts() -> list[Path]:
    """Return the text files of the repository, without this one and without the peers that a benchmark has installed."""
    inside = (path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*") if ".peers" not in path.parts)
    return sorted(
        path for path in (*REPOSITORY.iterdir(), *inside) if path.name.endswith(SUFFIXES) and path != Path(__file__)
    )


def test_every_citation_can_be_opened():
    found = [
        line for path in texts() for line in cited(path.read_text("utf-8"), path.relative_to(REPOSITORY).as_posix())
    ]

    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "# as in seed 002",
        "(reference C5)",
        "reference section 3",
        "statements 27 to 34",
        "(statement 65)",
        "pain #396",
        "(I7)",
        "see G3, (K11)",
    ],
)
def test_a_citation_by_number_is_found(line):
    assert cited(line, "x.py") == [f"x.py:1: {line}"]


@pytest.mark.parametrize(
    "line", ["docs/reference/behaviour.md", "the reference of the API", "Saga concurrency", "random.Random(seed)"]
)
def test_other_words_are_no_citation(line):
    assert cited(line, "x.py") == []


#: a path from the root of the repository, in a comment or on a page
PATH = re.compile(r"(?<![\w./-])(?:benchmarks|docs|examples|models|pycontrol|sql)/[\w./-]*[\w/]")
#: paths that somebody makes when they are needed, and patterns
MADE = {"benchmarks/.peers", "benchmarks/X.py", "examples/container/database_password.txt", "sql/tables/undo/"}


def missing_paths(text: str) -> set[str]:
    """Return the paths of the repository that a text names and that do not exist. The page of engines names tests as `folder/name`."""
    named = {found.rstrip(".") for found in PATH.findall(text.replace("\\.", "."))}
    return {path for path in named - MADE if not ((REPOSITORY / path).exists() or _test_file(path).is_file())}


def _test_file(path: str) -> Path:
    folder, _, name = path.partition("/")
    return REPOSITORY / "pycontrol" / "tests" / folder / f"test_{name}.py"


def test_every_path_that_a_text_names_exists():
    found = {path.relative_to(REPOSITORY).as_posix(): missing_paths(path.read_text("utf-8")) for path in texts()}

    assert {name: sorted(paths) for name, paths in found.items() if paths} == {}


def test_a_path_that_does_not_exist_is_found():
    assert missing_paths("see `pycontrol/tests/conformance/` and docs/engines.md.") == {"pycontrol/tests/conformance/"}
