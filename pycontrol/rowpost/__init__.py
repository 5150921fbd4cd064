"""rowpost: a message queue that lives in the database."""

__version__ = "0.1.0"
