"""A network between clients and a server's socket that cuts, delays and falls silent."""

from __future__ import annotations

import select
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["Proxy"]

#: the server's message CommandComplete of a COMMIT
COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\x00"


class Proxy:
    """Carries connections to a PostgreSQL socket.

    Attributes:
        cuts: how many of the next replies to a COMMIT are swallowed, with the connection cut after each.
        cut: how many were.
        delay: seconds for which everything is held back.
        silent: whether nothing is carried for now.
    """

    def __init__(self, folder: Path, server_socket: Path) -> None:
        folder.mkdir()
        folder.chmod(0o755)
        self.folder, self._server = folder, str(server_socket)
        self.cuts = self.cut = 0
        self.delay, self.silent = 0.0, False
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen(100)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            server.connect(self._server)
            while True:
                for end in select.select([client, server], [], [])[0]:
                    data = end.recv(65536)
                    if not data or (end is server and COMMITTED in data and self._is_cut()):
                        return
                    time.sleep(self.delay)
                    while self.silent:
                        time.sleep(0.01)
                    (server if end is client else client).sendall(data)

    def _is_cut(self) -> bool:
        with self._lock:
            if not self.cuts:
                return False
            self.cuts, self.cut = self.cuts - 1, self.cut + 1
            return True
