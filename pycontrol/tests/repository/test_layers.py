"""Imports point downwards, from room to room, and form no circle: every import of every module, wherever it stands."""

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

import rowpost

PACKAGE = Path(rowpost.__file__).parent
ENTRIES = 25

#: the rooms, from the lowest floor to the highest; a room may import from lower floors only
FLOORS = (
    ("version", "errors"),
    ("wire",),
    ("settings",),
    ("database",),
    ("recoverability", "archive"),
    ("transport", "deploy", "transactions"),
    ("handling",),
    ("sagas", "outbox"),
    ("pipeline",),
    ("endpoint",),
    ("operations",),
    ("workers", "testing", "spark", "dashboard"),
    ("cli",),
    ("rowpost", "__main__"),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
#: rooms that may import from less than everything below them
ONLY = {
    "spark": {"archive", "settings", "database", "wire", "errors", "version"},
    "archive": {"settings", "database", "wire", "errors", "version"},
}


@dataclass(frozen=True)
class Arrow:
    """One import: the module that imports, the line, and the module that is imported."""

    module: str
    line: int
    imported: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.imported}"


def modules_of(package: Path) -> dict[str, Path]:
    """The modules of a package folder by their names, which begin with `rowpost`."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = ("rowpost", *path.relative_to(package).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def arrows_of(package: Path) -> list[Arrow]:
    """All imports between modules of a package: inside functions, under TYPE_CHECKING, relative ones too."""
    modules = modules_of(package)
    found = []
    for name, path in modules.items():
        home = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for imported in _imported(node, home, modules):
                if imported != name:
                    found.append(Arrow(name, node.lineno, imported))
    return found


def _imported(node: ast.AST, home: str, modules: dict[str, Path]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name.partition(".")[0] == "rowpost"]
    if isinstance(node, ast.ImportFrom):
        above = home.split(".")[: len(home.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        if base.partition(".")[0] == "rowpost":
            return [f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base for alias in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")) and node.args:
        name = node.args[0]
        if isinstance(name, ast.Constant) and str(name.value).partition(".")[0] == "rowpost":
            return [str(name.value)]
    return []


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "rowpost"


def climbing(arrows: list[Arrow]) -> list[str]:
    """The imports that do not point to a lower floor, or that their room may not have."""
    found = []
    for arrow in arrows:
        ours, theirs = room_of(arrow.module), room_of(arrow.imported)
        if ours != theirs and (FLOOR[theirs] >= FLOOR[ours] or theirs not in ONLY.get(ours, {theirs})):
            found.append(str(arrow))
    return found


def circles(arrows: list[Arrow]) -> list[str]:
    """The modules that cannot be put into an order in which each imports only earlier ones."""
    loose: dict[str, set[str]] = {}
    for arrow in arrows:
        loose.setdefault(arrow.module, set()).add(arrow.imported)
    while free := [module for module, others in loose.items() if not others & loose.keys()]:
        for module in free:
            del loose[module]
    return sorted(loose)


def test_every_module_is_in_a_room():
    assert {room_of(module) for module in modules_of(PACKAGE)} == set(FLOOR)


def test_every_import_points_downwards():
    assert climbing(arrows_of(PACKAGE)) == []


def test_no_modules_import_one_another_in_a_circle():
    assert circles(arrows_of(PACKAGE)) == []


def test_a_reader_of_the_package_folder_sees_few_entries():
    entries = [path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"]

    assert len(entries) <= ENTRIES, sorted(entries)


@pytest.mark.parametrize(
    "statement",
    [
        "from rowpost.workers.supervisor import Supervisor",
        "import rowpost.workers.supervisor",
        "from rowpost.workers import supervisor",
        "from ..workers import supervisor",
        "def f():\n    from rowpost.workers.supervisor import Supervisor",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from rowpost.workers.supervisor import Supervisor",
        "import importlib\ndef f():\n    importlib.import_module('rowpost.workers.supervisor')",
    ],
)
def test_a_climbing_import_is_found_wherever_it_stands(tmp_path, statement):
    write(tmp_path, {"workers/supervisor.py": "class Supervisor: ...", "wire/message.py": statement})

    (found,) = climbing(arrows_of(tmp_path))

    assert found.startswith("rowpost.wire.message:")
    assert found.endswith("imports rowpost.workers.supervisor")


def test_spark_may_not_import_from_every_lower_floor(tmp_path):
    write(tmp_path, {"spark/sink.py": "from rowpost.pipeline.pipeline import Pipeline", "pipeline/pipeline.py": ""})

    assert climbing(arrows_of(tmp_path)) == ["rowpost.spark.sink:1 imports rowpost.pipeline.pipeline"]


def test_a_circle_within_a_room_is_found(tmp_path):
    write(tmp_path, {"wire/a.py": "def f():\n    from rowpost.wire.b import x", "wire/b.py": "from rowpost.wire.a import f"})

    assert circles(arrows_of(tmp_path)) == ["rowpost.wire.a", "rowpost.wire.b"]


def write(package: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        path = package / name
        path.parent.mkdir(exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text)
