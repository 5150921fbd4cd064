"""Find the SQL scripts: in the installed package, or at the root of the repository.

`sql_folder` is the folder with both dialects and the contract, `dialect_folder` the part of it that one engine runs,
`schema_version` the number of its newest one-time script.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from rowpost.errors import DeployError

__all__ = ["ONE_TIME", "dialect_folder", "schema_version", "sql_folder"]

#: a one-time script, by its path below the dialect's folder; the group is its number
ONE_TIME = re.compile(r"tables/(\d+)_\w+\.sql")

PACKAGE = Path(__file__).resolve().parents[1]


@cache
def sql_folder() -> Path:
    """Return the folder `sql`: inside the installed package, else at the root of the repository.

    Raises:
        DeployError: the folder is in neither place.
    """
    for folder in (PACKAGE / "sql", PACKAGE.parent.parent / "sql"):
        if (folder / "contract.yml").is_file():
            return folder
    raise DeployError(f"The folder sql is missing in {PACKAGE}: the installation is incomplete. Install rowpost again.")


def dialect_folder(engine: str, folder: Path | None = None) -> Path:
    """Return the folder with the scripts of one engine, below `folder` or rowpost's own."""
    root = folder or sql_folder()
    return root / "postgresql" if engine == "postgresql" else root


def schema_version(engine: str, folder: Path | None = None) -> int:
    """Return the number of the newest one-time script of an engine; 0 if there is none."""
    root = dialect_folder(engine, folder)
    names = (path.relative_to(root).as_posix() for path in root.glob("tables/*.sql"))
    return max((int(found[1]) for name in names if (found := ONE_TIME.fullmatch(name))), default=0)
