"""Rows that a real NServiceBus wrote. `tests/wire/recorded/README.md` says what each one is."""

import json
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "recorded"]

FOLDER = Path(__file__).parents[1] / "wire" / "recorded"


def recorded(name: str) -> dict[str, Any]:
    """A recorded file: of a row, `headers` is the text in its column, `body` the text of its bytes."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
