"""The databases of an environment beside the queues' own: participants of transactions, and outboxes' business data."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rowpost.settings.engine import engine_of
from rowpost.settings.yaml_file import Section, expand_secrets

__all__ = ["ODBC_SERVER", "RETENTION", "OutboxSettings", "read_outboxes", "read_participants"]

#: seconds for which an outbox remembers a message: a duplicate that comes later is handled again
RETENTION = 7 * 24 * 3600.0
ODBC_SERVER = re.compile(r"(?i)(^|;)\s*server\s*=")


@dataclass(frozen=True)
class OutboxSettings:
    """A business database with an outbox. `url`, a secret, may lead to another engine than the queues'.

    `retention`: seconds for which handled messages are remembered.
    """

    name: str
    url: str = field(repr=False)
    retention: float = RETENTION

    @property
    def engine(self) -> str:
        """postgresql or sqlserver."""
        return engine_of(self.url)


def read_participants(top: Section, dialect: str) -> tuple[tuple[str, str], ...]:
    """Names and URLs; on SQL Server the url is the database's name, with its linked server's where it has one."""
    found = []
    for section in top.sections("participants"):
        url = expand_secrets(section, "url", section.text("url"), dialect)
        if dialect == "postgresql" and not url.startswith(("postgresql://", "postgres://")):
            raise section.error("url", "must be a PostgreSQL url that starts with postgresql://")
        section.finish()
        found.append((section.name, url))
    return tuple(found)


def read_outboxes(top: Section) -> tuple[OutboxSettings, ...]:
    """The section `outbox`. Raises SettingsError."""
    found = []
    for section in top.sections("outbox"):
        raw = section.text("url")
        url = expand_secrets(section, "url", raw, engine_of(raw))
        if engine_of(url) == "sqlserver" and not ODBC_SERVER.search(url):
            raise section.error("url", "must be a PostgreSQL url, or an ODBC connection string such as Server=sql01;Database=shop;...")
        retention = section.seconds("retention", default=RETENTION, at_least=1.0)
        section.finish()
        found.append(OutboxSettings(section.name, url, retention))
    return tuple(found)
