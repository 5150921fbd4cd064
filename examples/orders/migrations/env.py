"""Alembic's environment: it changes the tables of the models, and leaves rowpost's alone."""

from alembic import context
from examples.orders.tables import Base, sqlalchemy_url
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool


def include_name(name: str | None, kind: str, parents: object) -> bool:
    """Return whether a table belongs to the models."""
    return kind != "table" or name in Base.metadata.tables


with create_engine(sqlalchemy_url(), poolclass=NullPool).connect() as connection:
    context.configure(connection=connection, target_metadata=Base.metadata, include_name=include_name)
    with context.begin_transaction():
        context.run_migrations()
