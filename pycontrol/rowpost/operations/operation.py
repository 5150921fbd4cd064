"""What all operations have in common: a request that executes and records itself in one transaction, and the document
of its result.

    done = Retry(queue="error", row=17).execute(database, Operator("dashboard", "ada"))
    print(done.sentence)

`failed`, `queues` and `delayed` have the operations; `bulk` and `purging` those that take several transactions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from msgspec.structs import asdict

from rowpost.database.connection import Connection
from rowpost.operations.documents import Document
from rowpost.operations.log import Noted, Operator
from rowpost.operations.rights import Right

__all__ = ["Operation", "Result"]


class Result(Document, frozen=True):
    """The document of what an operation did. `words`: its sentence, with the members' names in braces."""

    words: ClassVar[str]

    @property
    def sentence(self) -> str:
        """What was done, for people."""
        return self.words.format_map(asdict(self))


_R = TypeVar("_R", bound=Result)


@dataclass(frozen=True, kw_only=True)
class Operation(ABC, Generic[_R]):
    """A request of an operator.

    Attributes:
        name: what is done.
        right: what its login needs.
        queue: the queue that it changes.
        reason: why, for the operation log; None if it is not given.
    """

    name: ClassVar[str]
    right: ClassVar[Right]
    queue: str
    reason: str | None = None

    def execute(self, database: Connection, operator: Operator) -> _R:
        """Execute the operation and record it, in one transaction.

        Raises:
            QueueNotFound: the queue does not exist.
            QueueNotGranted, PermissionDenied: the login may not do it. Nothing was changed.
        """
        with operator.operation(database, self.logged_as, self.queue, reason=self.reason, **self.details()) as noted:
            return self.perform(database, operator, noted)

    @property
    def logged_as(self) -> str:
        """The name in the operation log."""
        return self.name

    def details(self) -> dict[str, Any]:
        """Return what the log says of the request, beside queue and reason."""
        return {}

    @abstractmethod
    def perform(self, database: Connection, operator: Operator, noted: Noted) -> _R:
        """Do it, within the transaction of `execute`, and add to its line in the log."""
