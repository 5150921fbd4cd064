"""Which engine a URL names."""

from __future__ import annotations

__all__ = ["engine_of"]


def engine_of(url: str) -> str:
    """Return the engine that a URL (PostgreSQL) or an ODBC connection string (SQL Server) leads to.

    >>> engine_of("postgresql://db01/shop"), engine_of("Server=sql01;Database=shop")
    ('postgresql', 'sqlserver')
    """
    return "postgresql" if url.startswith(("postgresql://", "postgres://")) else "sqlserver"
