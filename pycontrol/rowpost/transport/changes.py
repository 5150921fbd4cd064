"""What is done to failed messages: retry, discard, move to a queue, or edit their headers.

    ErrorQueue(database).change_all(rows, FailureChange("move", to="Billing"))

A change of many messages takes them in batches. Each batch is one transaction with whatever the caller reports in it.
If a batch is refused, its messages are changed one by one, so that only those stay that cannot be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rowpost.errors import InvalidMessage

__all__ = ["BATCH", "KINDS", "Changed", "FailureChange", "Report"]

#: messages that are changed in one transaction
BATCH = 100
KINDS = ("retry", "discard", "move", "edit")


@dataclass(frozen=True, slots=True)
class FailureChange:
    """What is done to a message.

    Attributes:
        kind: retry: back to the queue in which it failed, unchanged. discard: removed for good. move: as retry, to the
            queue `to`. edit: a copy with other headers goes to `to`, or back; it has a new id and names the original.
        to: a queue.
        headers: for an edit: the values of headers; None removes one.

    Raises:
        InvalidMessage: the kind is unknown, or a move has no queue, or an edit changes no header.
    """

    kind: str
    to: str | None = None
    headers: Mapping[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidMessage(f"There is no change {self.kind!r}: it is one of {', '.join(KINDS)}.")
        if self.kind == "move" and not self.to:
            raise InvalidMessage("To move messages, name the queue to which they go.")
        if self.kind == "edit" and not self.headers:
            raise InvalidMessage(
                "An edit of many messages needs a header that it sets or removes. To send them unchanged, retry them."
            )

    def apply(self, headers: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return the headers of a message after the edit.

        >>> FailureChange("edit", headers={"Tenant": "b", "Old": None}).apply({"Tenant": "a", "Old": "x", "Kept": "y"})
        {'Tenant': 'b', 'Kept': 'y'}
        """
        kept = {name: value for name, value in headers.items() if name not in self.headers}
        ordered = {
            name: self.headers.get(name, value)
            for name, value in headers.items()
            if name in kept or self.headers[name] is not None
        }
        return ordered | {
            name: value for name, value in self.headers.items() if value is not None and name not in ordered
        }


@dataclass(frozen=True, slots=True)
class Changed:
    """What became of messages.

    Attributes:
        done: messages that were changed.
        gone: messages that another session had removed or locked.
        refused: row version and reason of each message that stays in the error queue.
    """

    done: int = 0
    gone: int = 0
    refused: tuple[tuple[int, str], ...] = ()

    def __add__(self, other: Changed) -> Changed:
        return Changed(self.done + other.done, self.gone + other.gone, self.refused + other.refused)


#: is called in the transaction of each part, with its row versions and what became of them
Report = Callable[[Sequence[int], Changed], None]
