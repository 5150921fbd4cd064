"""rowpost: a message queue that lives in the database."""

from rowpost.version import __version__

__all__ = ["__version__"]
