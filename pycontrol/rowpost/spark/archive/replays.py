"""What an archive's folder stores of its replays: `_rowpost/replays/KEY` with a plan, the stored messages and the
progress.

`ReplayStore` is the store of one key, and `list_replays` describes all of them, without Spark. Each attempt to choose
messages has a folder of its own, and the plan names the one that counts. What a killed attempt has written is therefore
never sent. The first plan of a key counts: a later one is not stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from rowpost.archive.folder import METADATA_FOLDER, REPLAYS, ArchiveFolder
from rowpost.errors import ArchiveNotFound, SparkFailed

__all__ = ["CHOOSING", "ReplayStore", "StoredReplay", "list_replays"]

CHOOSING, SENDING, DONE, CANCELLED = "choosing", "sending", "done", "cancelled"


@dataclass(frozen=True)
class StoredReplay:
    """What is known of a replay, which is choosing its messages (or its command was killed), sending, done or
    cancelled.

    `messages` is None without a plan, `sent` counts the steps that are noted as sent (a killed run may have sent one
    more), and `queue` is None if each message goes to the queue in which it failed.
    """

    key: str
    state: str
    messages: int | None = None
    sent: int = 0
    queue: str | None = None
    where: str | None = None


class ReplayStore:
    """The files of the replay with this key. The key is a valid name of a file."""

    def __init__(self, folder: ArchiveFolder, key: str) -> None:
        self.folder, self.key, self._place = folder, key, f"replays/{key}"

    def new_attempt(self) -> str:
        """Return a name for the folder of a new attempt."""
        return f"attempt-{uuid4().hex[:12]}"

    def rows(self, attempt: str) -> str:
        """Return the address of the messages that an attempt has chosen."""
        return f"{self.folder.path}/{METADATA_FOLDER}/{self._place}/{attempt}/rows"

    def plan(self) -> dict[str, Any] | None:
        """Return the plan, or None if there is none."""
        return self.folder.read(f"{self._place}/plan.json")

    def create_plan(self, plan: dict[str, Any]) -> None:
        """Store a plan, unless the key has one already. Raises SparkFailed if the replay was cancelled meanwhile."""
        self.folder.create(f"{self._place}/plan.json", plan)
        if not self.folder.exists(f"{METADATA_FOLDER}/{self._place}/{plan['attempt']}"):
            self.folder.remove(self._place)
            raise SparkFailed(
                f"The replay {self.key!r} was cancelled while it chose its messages. Nothing was sent, and the key can "
                "be used again."
            )

    def sent(self) -> dict[str, int]:
        """Return how many steps and messages were sent."""
        return self.folder.read(f"{self._place}/sent.json") or {"steps": 0, "messages": 0}

    def note_sent(self, done: dict[str, int]) -> None:
        """Store how many steps and messages were sent."""
        self.folder.write(f"{self._place}/sent.json", done)

    def discard(self, attempt: str) -> None:
        """Delete the messages of one attempt, and the store if nothing else is in it."""
        self.folder.remove(f"{self._place}/{attempt}")
        if not self.folder.contents(f"{METADATA_FOLDER}/{self._place}", recursive=False):
            self.folder.remove(self._place)

    def finish(self) -> None:
        """Delete the messages of all attempts. The plan stays, so that the key is not used for another replay."""
        self.folder.delete(self._attempts())

    def find(self) -> StoredReplay | None:
        """Return what is known, or None if the archive has no replay with this key."""
        plan = self.plan()
        if plan is None:
            return StoredReplay(self.key, CHOOSING) if self._attempts() else None
        sent, asked = self.sent()["messages"], plan["asked"]
        state = CANCELLED if self._is_cancelled() else DONE if sent >= plan["messages"] else SENDING
        return StoredReplay(self.key, state, plan["messages"], sent, asked["queue"], asked["where"])

    def look_up(self) -> StoredReplay:
        """Return what `find` returns. Raises ArchiveNotFound if the archive has no replay with this key."""
        if (known := self.find()) is None:
            raise ArchiveNotFound(
                f"{self.folder.path} has no replay {self.key!r}. To list its replays, run: rowpost spark replays list "
                "DIR"
            )
        return known

    def cancel(self) -> StoredReplay:
        """Send no further step, delete the stored messages, and return what was known before.

        A run of the replay ends before its next step. Without a plan, nothing was sent, and the key can be used again.
        Raises ArchiveNotFound if the archive has no replay with this key, SparkFailed if all its messages are sent.
        """
        known = self.look_up()
        if known.state == DONE:
            raise SparkFailed(
                f"The replay {self.key!r} cannot be cancelled: its {known.messages:,} messages were sent."
            )
        if known.state == CHOOSING:
            self.folder.remove(self._place)
            return known
        self.folder.write(f"{self._place}/cancelled.json", {"sent": known.sent})
        self.finish()
        return known

    def check_not_cancelled(self) -> None:
        """Raise SparkFailed if the replay was cancelled."""
        if self._is_cancelled():
            raise SparkFailed(
                f"The replay {self.key!r} was cancelled: no further messages are sent. To send them, use a new key."
            )

    @contextmanager
    def unless_cancelled(self) -> Iterator[None]:
        """Raise SparkFailed for an error of the block if its reason is that `cancel` deleted the stored messages."""
        self.check_not_cancelled()
        try:
            yield
        except Exception:
            self.check_not_cancelled()
            raise

    def _is_cancelled(self) -> bool:
        return self.folder.read(f"{self._place}/cancelled.json") is not None

    def _attempts(self) -> list[str]:
        found = self.folder.contents(f"{METADATA_FOLDER}/{self._place}", recursive=False)
        return [path for path, info in found if not info.is_file]


def list_replays(folder: ArchiveFolder) -> list[StoredReplay]:
    """Return all replays of an archive, ordered by key."""
    keys = [path.rpartition("/")[2] for path, info in folder.contents(REPLAYS, recursive=False) if not info.is_file]
    return [found for key in keys if (found := ReplayStore(folder, key).find()) is not None]
