"""Say which databases a handler's changes may reach, and how the receiving transaction begins.

The transaction modes and what commits together with the removal of the message:

    mode                        removal of message     messages sent              SQL of the handler     a handler that
    fails none                        before handler runs    commit on their own        is not in a transaction    error
    queue at once receive_only                after the handler      commit before the removal  commits with the removal
    retry; may send twice sends_atomic_with_receive   after the handler      commit with the removal    commits with the
    removal   retry transaction_scope           after the handler      commit with the removal    in several databases
    retry

`pipeline.modes` has one class for each mode. A `Scope` is the part of a mode that a handler's context uses.
In mode `transaction_scope`, PostgreSQL uses two-phase commit (`coordinator`). SQL Server reaches other databases by
their names on the receiving connection, in a distributed transaction if one of them is on a linked server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from rowpost.database.connection import Connection
from rowpost.database.dialects.protocol import Begin
from rowpost.errors import SettingsError

__all__ = ["MODES", "NamedDatabases", "OneDatabase", "Scope", "begin_scope", "unknown_participant"]

MODES = ("none", "receive_only", "sends_atomic_with_receive", "transaction_scope")
#: the name of a database on SQL Server, or the names of a linked server and a database
_PLACE = re.compile(r"(?:(?:\[[^\]]+\]|[^.\[\];=]+)\.)?(?:\[[^\]]+\]|[^.\[\];=]+)")


class Scope(Protocol):
    """The databases that a handler's changes may reach within the message's transaction."""

    def business_connection(self, database: Connection) -> Connection:
        """Return the connection for business data: the receiving connection, or that of an outbox."""

    def enlist(self, participant: Any, database: Connection) -> Any:
        """Return a driver's connection to a participant, in a transaction that ends as the message's does."""


class OneDatabase:
    """Only the receiving connection takes part.

    Args:
        mode: named in error messages.
    """

    def __init__(self, mode: str) -> None:
        self._mode = mode

    def business_connection(self, database: Connection) -> Connection:
        """Return the receiving connection."""
        return database

    def enlist(self, participant: Any, database: Connection) -> Any:
        """Refuse.

        Raises:
            SettingsError: always.
        """
        raise SettingsError(
            f"{participant!r} cannot take part: in the transaction mode {self._mode} no other database can. Give the "
            "endpoint transaction_mode='transaction_scope', or use another connection, which commits on its own."
        )


class NamedDatabases:
    """Databases that the receiving connection of SQL Server reaches by their names.

    Args:
        participants: names of databases, or of linked servers and databases, by the participant's name.

    Raises:
        SettingsError: a participant is not such a name.
    """

    def __init__(self, participants: Mapping[str, str]) -> None:
        self._participants = participants
        for name, place in participants.items():
            if not _PLACE.fullmatch(place):
                raise SettingsError(
                    f"The participant {name!r} cannot be used: it must be the name of a database on this SQL Server, "
                    "or of a linked server and a database there, such as sql02.shop. Transactions reach it through "
                    "the receiving connection."
                )

    def business_connection(self, database: Connection) -> Connection:
        """Return the receiving connection."""
        return database

    def enlist(self, participant: Any, database: Connection) -> Any:
        """Return the receiving connection of a known participant.

        Raises:
            SettingsError: no participant has this name.
        """
        if participant not in self._participants:
            raise unknown_participant(participant, self._participants)
        return database.driver_connection


def unknown_participant(name: Any, known: Mapping[str, str]) -> SettingsError:
    """Return the error for a name that is not among the participants."""
    return SettingsError(
        f"No participant is named {name!r}. Known participants: {', '.join(sorted(known)) or 'none'}. Give its URL: "
        f"Endpoint(..., participants={{{name!r}: ...}}), or under `participants` of the environment."
    )


def begin_scope(engine: str, participants: Mapping[str, str]) -> Begin:
    """Return how the receiving transaction begins in mode `transaction_scope`.

    >>> begin_scope("sqlserver", {"shop": "sql02.shop"}), begin_scope("sqlserver", {"shop": "shop"})
    ('distributed', True)
    """
    remote = engine == "sqlserver" and any("." in re.sub(r"\[[^\]]*\]", "", place) for place in participants.values())
    return "distributed" if remote else True
