"""Draw one conversation as a text tree or as a Mermaid sequence diagram.

The functions take a sequence of `ConversationStep` and perform no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from rowpost.wire.message_types import short_type

__all__ = ["ConversationStep", "depth", "mermaid", "tree", "walk"]

_UNKNOWN = "(unknown)"
_UNSAFE = re.compile(r"[^\w.,:()' /-]")


@dataclass(frozen=True)
class ConversationStep:
    """One message at one endpoint.

    Attributes:
        failed: its handling has failed.
        took_ms: how long its handling took, in milliseconds.
        state: what is true of it if it is neither handled nor failed, such as waiting.
    """

    message_id: str | None
    related_to: str | None = None
    message_type: str | None = None
    intent: str | None = None
    sending_endpoint: str | None = None
    endpoint: str | None = None
    time_sent: datetime | None = None
    failed: bool = False
    took_ms: float | None = None
    state: str = ""

    @property
    def short_type(self) -> str:
        """The type without its namespace."""
        return short_type(self.message_type or "(no type)")


def depth(steps: Iterable[tuple[str | None, str | None]]) -> int:
    """Count the levels of the tree of (message, message that caused it) pairs. It is 1 if no message caused another.

    Wrong headers can form a cycle. Its messages are counted once.

    >>> depth([("a", None), ("b", "a"), ("c", "b"), ("d", "a")])
    3
    """
    causes = {message: cause for message, cause in steps if message is not None}
    levels: dict[str, int] = {}
    for message in causes:
        path: list[str] = []
        at: str | None = message
        while at in causes and at not in levels and at not in path:
            path.append(at)
            at = causes[at]
        level = 0 if at is None or at in path else levels.get(at, 0)
        for each in reversed(path):
            level += 1
            levels[each] = level
    return max(levels.values(), default=0)


def tree(steps: Sequence[ConversationStep]) -> list[str]:
    """Return one line for each step: message type, sender, receiver and processing time, indented below its cause.

    >>> tree([ConversationStep("a", None, "Shop.Place", endpoint="Sales", sending_endpoint="Web", took_ms=2.0),
    ...       ConversationStep("b", "a", "Shop.Placed", "Publish", "Sales", "Billing", failed=True)])
    ['Place  Web → Sales  2.0 ms', '└─ Placed  Sales → Billing  FAILED  (Publish)']
    """
    lines: list[str] = []
    for prefix, step in walk(steps):
        words = [f"{prefix}{step.short_type}", f"{step.sending_endpoint or _UNKNOWN} → {step.endpoint or _UNKNOWN}"]
        if step.failed:
            words.append("FAILED")
        elif step.state:
            words.append(step.state)
        elif step.took_ms is not None:
            words.append(f"{step.took_ms:,.1f} ms")
        if step.intent not in (None, "Send"):
            words.append(f"({step.intent})")
        lines.append("  ".join(words))
    return lines


def walk(steps: Sequence[ConversationStep]) -> Iterator[tuple[str, ConversationStep]]:
    """Yield each step once, after its cause, with the lines of the tree that stand before it."""
    known = {step.message_id for step in steps}
    children: dict[tuple[str | None, str | None], list[ConversationStep]] = {}
    for step in steps:
        children.setdefault((step.related_to, step.sending_endpoint), []).append(step)
    handled = {(step.message_id, step.endpoint) for step in steps}
    roots = [step for step in steps if (step.related_to, step.sending_endpoint) not in handled]
    seen: set[int] = set()
    orphans = iter(steps)  # the steps of a cycle have no root
    while True:
        stack = [("", "", step) for step in reversed(roots) if id(step) not in seen]
        while stack:
            prefix, below, step = stack.pop()
            if id(step) in seen:
                continue
            seen.add(id(step))
            yield prefix, step
            caused = children.get((step.message_id, step.endpoint), []) if step.message_id in known else []
            for number, child in enumerate(reversed(caused)):
                last = number == 0
                stack.append((below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "), child))
        roots = list(islice((step for step in orphans if id(step) not in seen), 1))
        if not roots:
            return


def mermaid(steps: Sequence[ConversationStep]) -> str:
    """Return a Mermaid sequence diagram in the order of sending. The arrow of a failed message ends in a cross."""
    names = list(dict.fromkeys(name or _UNKNOWN for step in steps for name in (step.sending_endpoint, step.endpoint)))
    aliases = {name: f"p{number}" for number, name in enumerate(names)}
    lines = ["sequenceDiagram", *(f"    participant {alias} as {_plain(name)}" for name, alias in aliases.items())]
    for step in steps:
        sender, receiver = aliases[step.sending_endpoint or _UNKNOWN], aliases[step.endpoint or _UNKNOWN]
        arrow = "-x" if step.failed else "--)" if step.intent == "Publish" else "->>"
        lines.append(f"    {sender}{arrow}{receiver}: {_plain(step.short_type)}")
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Replace characters that have a meaning in Mermaid: names come from message headers and are not trusted."""
    return _UNSAFE.sub("_", text)
