"""Shell completion of environments and queues. Reads files only and opens no connection."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from rowpost.errors import RowpostError
from rowpost.settings.environment import load_settings

__all__ = ["environment_names", "queue_names"]


def environment_names(incomplete: str) -> list[str]:
    """List the environments whose files are in the folders that rowpost searches."""
    folders = [Path(os.environ.get("ROWPOST_ENVIRONMENTS", ".")), Path("deploy/environments")]
    names = {path.stem for folder in folders for path in folder.glob("*.yml")}
    return sorted(name for name in names if name.startswith(incomplete))


def queue_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """List the queues that the environment declares."""
    try:
        settings = load_settings(ctx.params.get("env") or ctx.find_root().params.get("env"))
    except RowpostError:
        return []
    return [queue.name for queue in settings.queues if queue.name.startswith(incomplete)]
