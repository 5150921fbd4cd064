"""An S3 server on this machine (moto), which counts the requests that it gets.

It is a process of its own: deltalake holds Python's lock while it waits for an answer.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.workers import eventually

__all__ = ["BUCKET", "ObjectStore", "object_store"]

BUCKET = "lake"
_REQUEST = re.compile(r'"([A-Z]+) (\S+) HTTP/1')


@dataclass(frozen=True)
class ObjectStore:
    """A running server. `variables` are those of the environment that deltalake and pyarrow need for it."""

    port: int
    log: Path

    @property
    def variables(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "marker-secret", "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}", "AWS_ALLOW_HTTP": "true",
        }  # fmt: skip

    def client(self):
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.variables["AWS_ENDPOINT_URL"],
            region_name="us-east-1",
            aws_access_key_id="key",
            aws_secret_access_key="marker-secret",
        )

    def requests(self) -> Counter[str]:
        """Count the requests so far: PUT and POST, LIST, GET, HEAD and DELETE."""
        found: Counter[str] = Counter()
        for verb, path in _REQUEST.findall(self.log.read_text(encoding="utf-8", errors="replace")):
            found["LIST" if verb == "GET" and "list-type=2" in path else verb] += 1
        return found

    def stored(self) -> list[str]:
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return sorted(each["Key"] for page in pages for each in page.get("Contents", ()))


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Run a server with an empty bucket for the block."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log
        )
        try:
            store = ObjectStore(port, Path(log.name))
            eventually(lambda: _answers(port), "the S3 server answers", 60)
            store.client().create_bucket(Bucket=BUCKET)
            yield store
        finally:
            server.terminate()
            server.wait(30)


def _answers(port: int) -> bool:
    with socket.socket() as connection:
        connection.settimeout(1)
        return connection.connect_ex(("127.0.0.1", port)) == 0
