"""Find the queue that a user meant who typed another name."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable

__all__ = ["meant"]


def meant(name: str, known: Iterable[str]) -> str:
    """Return a question that names the known queue which is most like the name; empty if none is like it.

    >>> meant("Biling", ["Billing", "Sales"])
    "Did you mean 'Billing'?"
    """
    names = sorted(known)
    same = [each for each in names if _folded(each) == _folded(name)]
    if same:
        return f"Did you mean {same[0]!r}? The names differ in upper and lower case, or in how an accent is composed."
    near = difflib.get_close_matches(name, names, n=1)
    return f"Did you mean {near[0]!r}?" if near else ""


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
