"""Settings of other databases: participants of distributed transactions, and databases with an outbox."""

from __future__ import annotations

from dataclasses import dataclass, field

from rowpost.settings.engine import engine_of
from rowpost.settings.odbc_keywords import check_odbc
from rowpost.settings.yaml_file import expand_secrets, with_password
from rowpost.settings.yaml_node import Kept, Node, Texts, decode

__all__ = ["RETENTION", "OutboxSettings", "read_outboxes", "read_participants"]

#: seconds for which an outbox remembers a message. If a duplicate arrives later, it is handled again.
RETENTION = 7 * 24 * 3600.0


@dataclass(frozen=True)
class OutboxSettings:
    """A business database with an outbox.

    Attributes:
        name: how endpoints refer to it.
        url: a secret. It may lead to another engine than the one of the queues.
        retention: seconds for which handled messages are remembered.
    """

    name: str
    url: str = field(repr=False)
    retention: Kept = RETENTION

    @property
    def engine(self) -> str:
        """postgresql or sqlserver."""
        return engine_of(self.url)


@dataclass(frozen=True)
class _Participant:
    url: str = field(repr=False)
    password_file: str | None = None
    password_command: Texts = ()


@dataclass(frozen=True)
class _Outbox(OutboxSettings):
    password_file: str | None = None
    password_command: Texts = ()


def read_participants(root: Node, dialect: str, *, offline: bool = False) -> tuple[tuple[str, str], ...]:
    """Read the section `participants`. `offline` as for `yaml_file.expand_secrets`.

    Returns:
        Names and URLs. On SQL Server the URL is the name of a database, with its linked server's if it lies on one.

    Raises:
        SettingsError
    """
    found = []
    for node in root.children("participants"):
        participant = decode(node, _Participant)
        url = expand_secrets(node, "url", participant.url, dialect, offline=offline)
        unknown = offline and url.startswith("${")
        if dialect == "postgresql" and not unknown and not url.startswith(("postgresql://", "postgres://")):
            raise node.error("url", "must be a PostgreSQL url that starts with postgresql://")
        found.append((node.name, with_password(node, url, participant.password_file, participant.password_command)))
    return tuple(found)


def read_outboxes(root: Node, *, offline: bool = False) -> tuple[OutboxSettings, ...]:
    """Read the section `outbox`. `offline` as for `yaml_file.expand_secrets`.

    Raises:
        SettingsError: also if a URL consists of a variable without a value, because the URL says which engine is
            planned for.
    """
    found = []
    for node in root.children("outbox"):
        outbox = decode(node, _Outbox, given={"name": node.name})
        known = offline and not outbox.url.startswith("${")
        url = expand_secrets(node, "url", outbox.url, outbox.engine, offline=known)
        if engine_of(url) == "sqlserver":
            check_odbc(node, url, "a PostgreSQL url, or ")
        found.append(
            OutboxSettings(
                node.name, with_password(node, url, outbox.password_file, outbox.password_command), outbox.retention
            )
        )
    return tuple(found)
