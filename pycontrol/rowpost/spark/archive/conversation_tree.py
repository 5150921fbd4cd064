"""One conversation as a tree of lines, and as a sequence diagram for Mermaid. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

__all__ = ["Step", "depth", "mermaid", "tree"]

_NOBODY = "(somebody)"
_UNSAFE = re.compile(r"[^\w.,:()' /-]")


@dataclass(frozen=True)
class Step:
    """A message that one endpoint handled, or failed to. `took_ms` is the handling's time."""

    message_id: str | None
    related_to: str | None = None
    message_type: str | None = None
    intent: str | None = None
    sending_endpoint: str | None = None
    endpoint: str | None = None
    time_sent: datetime | None = None
    failed: bool = False
    took_ms: float | None = None

    @property
    def short_type(self) -> str:
        """The type without its namespace."""
        return (self.message_type or "(no type)").rpartition(".")[2]


def depth(steps: Iterable[tuple[str | None, str | None]]) -> int:
    """Levels of the tree that (message, the message that caused it) make; 1 where none caused another.

    A circle, which only a wrong header can make, counts until it closes.

    >>> depth([("a", None), ("b", "a"), ("c", "b"), ("d", "a")])
    3
    """
    causes = {message: cause for message, cause in steps if message is not None}
    levels: dict[str, int] = {}
    for message in causes:
        way: list[str] = []
        at: str | None = message
        while at in causes and at not in levels and at not in way:
            way.append(at)
            at = causes[at]
        level = levels.get(at, 0) if at not in way else 0
        for each in reversed(way):
            level += 1
            levels[each] = level
    return max(levels.values(), default=0)


def tree(steps: Sequence[Step]) -> list[str]:
    """Lines: what caused what, who sent it to whom, how long it took.

    >>> tree([Step("a", None, "Shop.Place", endpoint="Sales", sending_endpoint="Web", took_ms=2.0),
    ...       Step("b", "a", "Shop.Placed", "Publish", "Sales", "Billing", failed=True)])
    ['Place  Web → Sales  2.0 ms', '└─ Placed  Sales → Billing  FAILED  (Publish)']
    """
    lines: list[str] = []
    for lead, step in _walk(steps):
        words = [f"{lead}{step.short_type}", f"{step.sending_endpoint or _NOBODY} → {step.endpoint or _NOBODY}"]
        if step.failed:
            words.append("FAILED")
        elif step.took_ms is not None:
            words.append(f"{step.took_ms:,.1f} ms")
        if step.intent not in (None, "Send"):
            words.append(f"({step.intent})")
        lines.append("  ".join(words))
    return lines


def _walk(steps: Sequence[Step]) -> Iterator[tuple[str, Step]]:
    """Every step once, with what stands before it in its line."""
    known = {step.message_id for step in steps}
    children: dict[tuple[str | None, str | None], list[Step]] = {}
    for step in steps:
        children.setdefault((step.related_to, step.sending_endpoint), []).append(step)
    handled = {(step.message_id, step.endpoint) for step in steps}
    roots = [step for step in steps if (step.related_to, step.sending_endpoint) not in handled]
    seen: set[int] = set()
    orphans = iter(steps)  # what stands in a circle has no root
    while True:
        stack = [("", "", step) for step in reversed(roots) if id(step) not in seen]
        while stack:
            lead, below, step = stack.pop()
            if id(step) in seen:
                continue
            seen.add(id(step))
            yield lead, step
            own = children.get((step.message_id, step.endpoint), []) if step.message_id in known else []
            for number, child in enumerate(reversed(own)):
                last = number == 0
                stack.append((below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "), child))
        roots = list(islice((step for step in orphans if id(step) not in seen), 1))
        if not roots:
            return


def mermaid(steps: Sequence[Step]) -> str:
    """A sequence diagram in Mermaid's language, in the order of sending; a failed handling ends in a cross."""
    names = list(dict.fromkeys(name or _NOBODY for step in steps for name in (step.sending_endpoint, step.endpoint)))
    aliases = {name: f"p{number}" for number, name in enumerate(names)}
    lines = ["sequenceDiagram", *(f"    participant {alias} as {_plain(name)}" for name, alias in aliases.items())]
    for step in steps:
        sender, receiver = aliases[step.sending_endpoint or _NOBODY], aliases[step.endpoint or _NOBODY]
        arrow = "-x" if step.failed else "--)" if step.intent == "Publish" else "->>"
        lines.append(f"    {sender}{arrow}{receiver}: {_plain(step.short_type)}")
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Names come from strangers, and some characters end a line of Mermaid."""
    return _UNSAFE.sub("_", text)
