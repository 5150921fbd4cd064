"""The names of the headers that rowpost reads or writes."""

from __future__ import annotations

__all__ = ["FORWARD_DESTINATION"]


FORWARD_DESTINATION = "NServiceBus.SqlServer.ForwardDestination"
