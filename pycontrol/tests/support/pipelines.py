"""Pipelines for tests, with an endpoint or with a plain function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rowpost.database.connection import Connection
from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.function import FunctionEndpoint
from rowpost.pipeline.observer import Observer
from rowpost.pipeline.pipeline import Pipeline
from rowpost.settings.worker import FunctionRetries

__all__ = ["Steps", "pipeline_with"]


class Steps(Observer):
    """Calls a function with the name of each step of a message."""

    def __init__(self, step: Callable[[str], None]) -> None:
        self._step = step

    def step(self, name: str) -> None:
        self._step(name)


def pipeline_with(
    database: Connection,
    queue: str,
    handler: Endpoint | Callable[..., Any],
    *,
    attempts: int = 6,
    error_queue: str = "error",
    **options: Any,
) -> Pipeline:
    """Return a pipeline. A plain function becomes an endpoint, with these attempts and this error queue."""
    endpoint = (
        handler
        if isinstance(handler, Endpoint)
        else FunctionEndpoint(handler, queue, retries=FunctionRetries(attempts), error_queue=error_queue)
    )
    return Pipeline(database, queue, endpoint, **options)
