"""Imports point downwards, from room to room and from sub-room to sub-room, and form no circle: every import, wherever it stands."""

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

import rowpost

PACKAGE = Path(rowpost.__file__).parent
REPOSITORY = Path(__file__).parents[3]
ENTRIES = 25

#: the modules of a room that have no place of their own in its floors
REST = "*"
#: for each room with sub-rooms: its floors, from the lowest to the highest. What is on a floor may import from lower floors only, and the
#: modules of REST from one another. A room without sub-rooms has no entry: within it, only circles are forbidden.
FLOORS = {
    "rowpost": (
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
        ("cli", "pytest_plugin"),
        ("__init__", "__main__"),
    ),
    "rowpost.archive": ((REST,), ("source",), ("standalone",)),
    "rowpost.cli": ((REST,), ("errors", "queue", "run"), ("operations", "demo", "spark"), ("app",)),
    "rowpost.database": (("sql_folder", "moments"), ("contract",), ("dialects",), (REST,)),
    "rowpost.database.dialects": (
        ("protocol", "relations"),
        ("explanations",),
        ("postgresql", "sqlserver"),
        ("choice",),
    ),
    "rowpost.pipeline": ((REST,), ("telemetry",)),
    "rowpost.spark": ((REST,), ("archive",), ("bodies", "source"), ("jobs",)),
    "rowpost.workers": ((REST,), ("worker", "tasks", "exposition", "bridge"), ("supervision",)),
}
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
    """The modules of a package folder by their names, which begin with the folder's."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        if any(part.startswith(".") for part in path.relative_to(package).parts):
            continue  # what benchmarks have installed
        parts = (package.name, *path.relative_to(package).with_suffix("").parts)
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
    package = home.partition(".")[0]
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name.partition(".")[0] == package]
    if isinstance(node, ast.ImportFrom):
        above = home.split(".")[: len(home.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        if base.partition(".")[0] == package:
            return [f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base for alias in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")) and node.args:
        name = node.args[0]
        if isinstance(name, ast.Constant) and str(name.value).partition(".")[0] == package:
            return [str(name.value)]
    return []


def rooms_of(package: Path) -> set[str]:
    """The folders of a package that have folders with modules in them, by their names."""
    folders = {module.rpartition(".")[0] for module, path in modules_of(package).items() if path.name != "__init__.py"}
    return {folder.rpartition(".")[0] for folder in folders} - {""}


def crossing(arrow: Arrow) -> tuple[str, str, str]:
    """The innermost room that both ends of an arrow are in, and the parts of that room at both ends."""
    ours, theirs = arrow.module.split("."), arrow.imported.split(".")
    same = next(
        (n for n, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other),
        min(len(ours), len(theirs)),
    )
    return (
        ".".join(ours[:same]),
        "".join(ours[same : same + 1]) or "__init__",
        "".join(theirs[same : same + 1]) or "__init__",
    )


def climbs(room: str, ours: str, theirs: str) -> bool:
    """Whether the import of one part of a room by another does not point to a lower floor. A room's `__init__` is above all others."""
    floors = {part: number for number, parts in enumerate(FLOORS[room]) for part in parts}
    above = {"__init__": len(floors)} | floors
    if ours not in above and theirs not in above:
        return False  # two modules of REST
    return above.get(theirs, floors.get(REST, 0)) >= above.get(ours, floors.get(REST, 0))


def climbing(arrows: list[Arrow]) -> list[str]:
    """The imports that do not point to a lower floor, or that their room may not have."""
    found = []
    for arrow in arrows:
        room, ours, theirs = crossing(arrow)
        forbidden = room == "rowpost" and theirs not in ONLY.get(ours, {theirs})
        if forbidden or (room in FLOORS and climbs(room, ours, theirs)):
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


def test_every_room_with_sub_rooms_has_its_floors_in_the_table():
    assert rooms_of(PACKAGE) == set(FLOORS)


@pytest.mark.parametrize("room", FLOORS)
def test_every_part_of_a_room_is_on_one_of_its_floors(room):
    places = {name for names in FLOORS[room] for name in names} - {REST}

    parts = {
        module.removeprefix(f"{room}.").partition(".")[0]
        for module in modules_of(PACKAGE)
        if module.startswith(f"{room}.")
    }

    assert places <= {*parts, "__init__"}, "the table has a part that the package does not have"
    if REST not in (name for names in FLOORS[room] for name in names):
        assert parts <= places


def test_every_import_points_downwards():
    assert climbing(arrows_of(PACKAGE)) == []


@pytest.mark.parametrize(
    "folder",
    [PACKAGE, *(REPOSITORY / each for each in ("benchmarks", "deploy", "pycontrol/tests"))],
    ids=lambda each: each.name,
)
def test_no_modules_import_one_another_in_a_circle(folder):
    assert circles(arrows_of(folder)) == []


def test_a_reader_of_the_package_folder_sees_few_entries():
    entries = {path.stem for path in PACKAGE.iterdir()} - {"__pycache__"}

    assert len(entries) <= ENTRIES, sorted(entries)


@pytest.fixture
def package(tmp_path):
    return tmp_path / "rowpost"


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
def test_a_climbing_import_is_found_wherever_it_stands(package, statement):
    write(package, {"workers/supervisor.py": "class Supervisor: ...", "wire/message.py": statement})

    (found,) = climbing(arrows_of(package))

    assert found.startswith("rowpost.wire.message:")
    assert found.endswith("imports rowpost.workers.supervisor")


def test_spark_may_not_import_from_every_lower_floor(package):
    write(package, {"spark/sink.py": "from rowpost.pipeline.pipeline import Pipeline", "pipeline/pipeline.py": ""})

    assert climbing(arrows_of(package)) == ["rowpost.spark.sink:1 imports rowpost.pipeline.pipeline"]


@pytest.mark.parametrize(
    ("importing", "imported"),
    [
        ("database/dialects/postgresql/libpq.py", "database/dialects/sqlserver/session.py"),
        ("database/dialects/protocol.py", "database/dialects/postgresql/libpq.py"),
        ("database/dialects/sqlserver/dialect.py", "database/connection.py"),
        ("workers/events.py", "workers/tasks/audit.py"),
        ("database/dialects/sqlserver/dialect.py", "database/dialects/__init__.py"),
    ],
)
def test_an_import_that_climbs_within_a_room_is_found(package, importing, imported):
    name = ".".join(("rowpost", *Path(imported).with_suffix("").parts)).removesuffix(".__init__")
    write(package, {imported: "", importing: f"import {name}"})

    (found,) = climbing(arrows_of(package))

    assert found.endswith(f"imports {name}")


def test_a_module_of_a_room_may_import_from_its_sub_room_below(package):
    write(
        package,
        {
            "database/dialects/choice.py": "",
            "database/connection.py": "import rowpost.database.dialects.choice\nimport rowpost.database.embedded",
        },
    )

    assert climbing(arrows_of(package)) == []


def test_a_circle_within_a_room_is_found(package):
    write(
        package,
        {"wire/a.py": "def f():\n    from rowpost.wire.b import x", "wire/b.py": "from rowpost.wire.a import f"},
    )

    assert circles(arrows_of(package)) == ["rowpost.wire.a", "rowpost.wire.b"]


def write(package: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text)
