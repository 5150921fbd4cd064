"""Renew the leases of one queue that this process holds: `LeaseRenewer`.

One thread and one statement renew all of them at a third of their time, with the progress of their handlers. The thread
runs while there are leases.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from uuid import UUID

from rowpost.database.pool import Connections
from rowpost.errors import RowpostError
from rowpost.transactions.leases import Lease

__all__ = ["LeaseRenewer"]

logger = logging.getLogger("rowpost")

#: renewals within the time of a lease, and after a renewal that failed
RENEWALS, RETRIES = 3, 12


class LeaseRenewer:
    """Renews leases until they are removed. Thread-safe.

    Args:
        connections: lend the connection of a renewal.
        queue: the queue's name.
        seconds: the time of a lease, 1 or more.
    """

    def __init__(self, connections: Connections, queue: str, seconds: int) -> None:
        self._connections, self._queue, self._seconds = connections, queue, seconds
        self._changed = threading.Condition()
        self._leases: dict[UUID, Lease] = {}
        self._thread: threading.Thread | None = None

    def add(self, lease: Lease) -> None:
        """Renew a lease from now on."""
        with self._changed:
            self._leases[lease.token] = lease
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"rowpost leases of {self._queue}", daemon=True)
                self._thread.start()

    def remove(self, lease: Lease) -> None:
        """Renew a lease no more."""
        with self._changed:
            self._leases.pop(lease.token, None)
            if not self._leases:
                self._changed.notify_all()

    def _run(self) -> None:
        wait = self._seconds / RENEWALS
        while True:
            end = time.monotonic() + wait
            with self._changed:
                while self._leases and (left := end - time.monotonic()) > 0:
                    self._changed.wait(left)
                if not self._leases:
                    self._thread = None
                    return
                leases = list(self._leases.values())
            wait = self._seconds / (RENEWALS if self._renew(leases) else RETRIES)

    def _renew(self, leases: list[Lease]) -> bool:
        """Renew leases, and note which are lost. Return whether the database was reached."""
        text = json.dumps([each.document for each in leases], ensure_ascii=False)
        try:
            with self._connections.borrow() as database:
                rows = database.call("renew_leases", self._queue, leases=text, seconds=self._seconds)
        except RowpostError as error:
            logger.warning("%d leases of queue %r were not renewed: %s", len(leases), self._queue, error)
            return False
        except Exception:  # a defect must not end the thread: the leases of all handlers would expire
            logger.exception("The leases of queue %r were not renewed; this is a defect of rowpost", self._queue)
            return False
        renewed = {row.token for row in rows}
        with self._changed:
            for each in leases:
                each.lost = each.token in self._leases and each.token not in renewed
        return True
