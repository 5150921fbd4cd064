"""The test classes of NServiceBus, what holds each of them here, and the page that lists them.

`docs/reference/nservicebus-tests.yml` has one entry for each class: the tests of this repository that hold what the class
asserts, or the reason why it does not apply. `load` reads the entries, `page` makes `docs/reference/nservicebus-tests.md`.

The sources of NServiceBus are not in this repository. The file therefore states for each suite how many classes it has, and
a digest of their names. `python -m tests.support.nservicebus_tests PROJECT...`, with the folders of test projects in a
checkout, prints both, with the names.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

__all__ = [
    "DATA",
    "DOTNET_ONLY",
    "VERDICTS",
    "WITHOUT",
    "Entry",
    "Suite",
    "classes_in",
    "digest",
    "load",
    "page",
    "parse",
]

DATA = Path(__file__).resolve().parents[3] / "docs" / "reference" / "nservicebus-tests.yml"
#: the verdicts that an entry may have, and the words of the page
VERDICTS = {"holds": "hold", "differs": "differ", "absent": "absent", "untried": "untried", "later": "later"}
#: the verdicts that the page explains first
WITHOUT = ("differs", "absent", "untried")
#: the key of a folder whose value lists the names of classes that test nothing but .NET
DOTNET_ONLY = ".NET only"

HEAD = """
# NServiceBus's tests

This page lists the test classes of NServiceBus, each of which describes one behaviour, with the tests of this repository
that hold the same behaviour, or with the reason why it does not apply to rowpost. Use it to look up whether something that
your .NET endpoints rely on is the same in rowpost.
"""

WORDS = """\
- *hold*: the named tests show the same behaviour.
- *differ*: rowpost does something else in the same situation.
- *absent*: rowpost has no such feature.
- *later*: rowpost has no such feature yet. [The list below](#planned) names the feature that brings it.
- *untried*: rowpost documents it, and no engine of the tests can show it.
- *.NET only*: the class tests classes, containers, scanning or packages of .NET, which have no counterpart in Python.

The tests are in `pycontrol/tests`. `make test` or `make test/all` runs each of them. A class with several methods has the
worst verdict of its methods.
"""


@dataclass(frozen=True)
class Entry:
    """One test class of NServiceBus: a verdict with tests, and a note, a reason, or the key of a feature that is planned."""

    folder: str
    name: str
    verdict: str
    tests: tuple[str, ...] = ()
    reason: str = ""

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}".removeprefix("./")


@dataclass(frozen=True)
class Suite:
    """One test project of NServiceBus: the version read, the number of its classes, and the digest of their names."""

    name: str
    version: str
    classes: int
    names: str
    entries: tuple[Entry, ...]
    dotnet_only: tuple[str, ...]

    def paths(self) -> list[str]:
        """Return the folder and name of each class, also of those that are about .NET only."""
        return [*(entry.path for entry in self.entries), *self.dotnet_only]


class _UniqueKeys(yaml.SafeLoader):
    """Refuse a mapping that has a key twice, of which YAML would keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = Counter(key.value for key, _ in node.value)
        twice = [key for key, count in keys.items() if count > 1]
        if twice:
            raise ValueError(f"more than one entry for {', '.join(twice)}, {node.start_mark}")
        return super().construct_mapping(node, deep)


def load() -> tuple[dict[str, str], list[Suite]]:
    """Return the planned features by their keys, and the suites in the order of the page."""
    return parse(DATA.read_text(encoding="utf-8"))


def parse(text: str) -> tuple[dict[str, str], list[Suite]]:
    """Read the data file.

    Raises:
        ValueError: a class has two entries, or an entry has another form than those that the file describes.
    """
    data = yaml.load(text, _UniqueKeys)
    _check_keys("the file", data, {"later", "suites"})
    suites = [_suite(name, fields) for name, fields in data["suites"].items()]
    unknown = {e.reason for s in suites for e in s.entries if e.verdict == "later"} - set(data["later"])
    if unknown:
        raise ValueError(f"'later' names no feature that the file lists: {', '.join(sorted(unknown))}")
    return data["later"], suites


def _suite(name: str, fields: dict[str, Any]) -> Suite:
    _check_keys(name, fields, {"version", "classes", "names", "folders"})
    entries: list[Entry] = []
    dotnet_only: list[str] = []
    for folder, classes in fields["folders"].items():
        dotnet_only += [f"{folder}/{each}".removeprefix("./") for each in classes.get(DOTNET_ONLY, ())]
        entries += [_entry(folder, key, value) for key, value in classes.items() if key != DOTNET_ONLY]
    return Suite(name, fields["version"], fields["classes"], str(fields["names"]), tuple(entries), tuple(dotnet_only))


def _entry(folder: str, name: str, fields: dict[str, Any]) -> Entry:
    verdicts = fields.keys() & VERDICTS.keys()
    beside = "note" if "holds" in verdicts else "test"
    if len(verdicts) != 1 or fields.keys() - verdicts - {beside}:
        raise ValueError(
            f"{folder}/{name}: one of {', '.join(VERDICTS)} is needed, and '{beside}' is allowed: {list(fields)}"
        )
    (verdict,) = verdicts
    tests, reason = fields[verdict], fields.get(beside, "")
    if verdict != "holds":
        tests, reason = reason, tests
    return Entry(folder, name, verdict, (tests,) if isinstance(tests, str) and tests else tuple(tests), reason)


def _check_keys(where: str, fields: dict[str, Any], keys: set[str]) -> None:
    if fields.keys() != keys:
        raise ValueError(f"{where} has the keys {sorted(fields)} instead of {sorted(keys)}")


def digest(paths: Iterable[str]) -> str:
    """Return 12 hexadecimal digits that depend on the names of the classes, but not on their order."""
    return hashlib.sha256("\n".join(sorted(paths)).encode()).hexdigest()[:12]


def page(made: str) -> str:
    """Return `docs/reference/nservicebus-tests.md`.

    Args:
        made: the comment that says how the page is made.
    """
    later, suites = load()
    parts = [made + HEAD, _counts(suites), WORDS, _without(suites), _planned(later, suites), *map(_section, suites)]
    return "\n".join(parts)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = tuple(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def _counts(suites: list[Suite]) -> str:
    rows = [[suite.name, suite.version, *map(str, _numbers(suite))] for suite in suites]
    total = [str(sum(column)) for column in zip(*map(_numbers, suites), strict=True)]
    head = ("Suite", "Version", "Classes", *VERDICTS.values(), DOTNET_ONLY)
    return _table(head, [*rows, ["all", "", *total]])


def _numbers(suite: Suite) -> list[int]:
    verdicts = Counter(entry.verdict for entry in suite.entries)
    return [len(suite.paths()), *(verdicts[each] for each in VERDICTS), len(suite.dotnet_only)]


def _without(suites: list[Suite]) -> str:
    rows = [
        [_short(suite.name), f"`{entry.path}`", VERDICTS[entry.verdict], _text(entry)]
        for suite in suites
        for entry in suite.entries
        if entry.verdict in WITHOUT
    ]
    return f"## What differs, is absent or was not tried\n\n{_table(('Suite', 'Class', 'Verdict', 'Reason'), rows)}"


def _planned(later: dict[str, str], suites: list[Suite]) -> str:
    parts = ["## Planned\n"]
    for key, text in later.items():
        names = [f"`{e.path}`" for s in suites for e in s.entries if (e.verdict, e.reason) == ("later", key)]
        parts.append(f"- **{key}**: {text} {_number(names)}: {', '.join(names)}.")
    return "\n".join(parts) + "\n"


def _section(suite: Suite) -> str:
    rows = [[f"`{entry.path}`", _text(entry)] for entry in suite.entries]
    alone = ", ".join(f"`{path}`" for path in suite.dotnet_only) or "none"
    return (
        f"## {suite.name}\n\n{_table(('Class', 'Test or reason'), rows)}\n"
        f"{DOTNET_ONLY}, {_number(suite.dotnet_only)}: {alone}.\n"
    )


def _number(classes: tuple[str, ...] | list[str]) -> str:
    return f"{len(classes)} class{'es' if len(classes) != 1 else ''}"


def _text(entry: Entry) -> str:
    """Return the cell with the reason and the tests of one class."""
    reason = f"planned: {entry.reason}" if entry.verdict == "later" else entry.reason
    tests = [f"`{path}`: `{name}`" for path, _, name in (test.partition("::") for test in entry.tests)]
    return "<br>".join([*([reason] if reason else []), *tests])


def _short(suite: str) -> str:
    return suite.removeprefix("NServiceBus.").removeprefix("Transport.")


def classes_in(project: Path) -> list[str]:
    """Return the folder and name of each test class of a project, with the classes of files that it links."""
    found = [
        f"{path.parent.relative_to(project).as_posix()}/{name}".removeprefix("./")
        for path in project.rglob("*.cs")
        for name in _test_classes(path)
    ]
    for path, folder in _linked(project):
        found += [f"{folder}/{name}".removeprefix("/") for name in _test_classes(path)]
    return sorted(found)


def _test_classes(path: Path) -> list[str]:
    """Return the classes of a file that have a method with an attribute of NUnit for tests."""
    found: list[str] = []
    current = ""
    for line in path.read_text(encoding="utf-8-sig").splitlines():
        declared = re.match(r"\s*((?:[a-z]+ )*)class (\w+)", line)
        current = current if not declared else "" if "abstract" in declared[1] else declared[2]
        if current and current not in found and re.search(r"\[(?:\w+, *)*(?:Test|TestCase|TestCaseSource)\b", line):
            found.append(current)
    return found


def _linked(project: Path) -> Iterator[tuple[Path, str]]:
    for file in project.glob("*.csproj"):
        for include, base in re.findall(
            r'<Compile Include="(\.\.[^*"]*\.cs)"(?: LinkBase="(\w+)")?', file.read_text("utf-8-sig")
        ):
            path = project / include.replace("\\", "/")
            if path.is_file():
                yield path, base


def main() -> None:
    for project in map(Path, sys.argv[1:]):
        names = classes_in(project)
        print(f"{project.name}: classes: {len(names)}, names: {digest(names)}", *names, sep="\n  ")


if __name__ == "__main__":
    main()
