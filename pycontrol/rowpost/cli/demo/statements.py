"""The demo's own SQL, in one file per statement and dialect."""

from __future__ import annotations

from functools import cache
from pathlib import Path

__all__ = ["statement"]

FOLDER = Path(__file__).parent / "sql"


@cache
def statement(engine: str, name: str) -> str:
    """Return the text of sql/<engine>/<name>.sql."""
    return (FOLDER / engine / f"{name}.sql").read_text(encoding="utf-8")
