"""Send to an address that nobody registered, as a bus does, on a connection that may be a caller's own."""

from uuid import UUID, uuid4

from rowpost.database.connection import Connection
from rowpost.transport.directory import send_unregistered as unregistered_call
from rowpost.transport.directory import table_of
from rowpost.wire.message import encode_headers

__all__ = ["send_unregistered"]


def send_unregistered(database, address: str, body: bytes, headers: dict | None = None) -> UUID:
    """Send a message with the caller's own right to the table; return its row's id."""
    database = database if isinstance(database, Connection) else Connection.share(database)
    row_id = uuid4()
    content = {"headers": encode_headers(headers or {}), "body": body, "id": row_id}
    database.call_all([unregistered_call(table_of(database, address), content)])
    return row_id
