"""The tables of the shop. `python -m shop.tables` creates them in the database of the variable SHOP_URL."""

import os

from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Placed(Base):
    __tablename__ = "placed"
    order_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    card: Mapped[str]


class Charged(Base):
    __tablename__ = "charged"
    order_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Mailed(Base):
    __tablename__ = "mailed"
    order_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    address: Mapped[str]


class Surrounded(Base):
    """What the functions around handlers have written."""

    __tablename__ = "surrounded"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int]
    by: Mapped[str]


def engine_of(url: str) -> Engine:
    return create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))


def create(url: str) -> None:
    engine = engine_of(url)
    Base.metadata.create_all(engine)
    engine.dispose()


if __name__ == "__main__":
    create(os.environ["SHOP_URL"])
