"""SQLAlchemy's models, whose tables Alembic makes, and where their database is."""

from pathlib import Path

from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from rowpost import database_url, load_settings

__all__ = ["Base", "Invoice", "Order", "sqlalchemy_url"]

SETTINGS = load_settings(Path(__file__).with_name("orders.yml"))


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "web_order"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    product: Mapped[str]
    state: Mapped[str] = mapped_column(default="placed")


class Invoice(Base):
    __tablename__ = "web_invoice"
    order_id: Mapped[int] = mapped_column(ForeignKey(Order.id), primary_key=True)
    text: Mapped[str | None]


def sqlalchemy_url() -> str:
    """Return the URL of the environment's database, with the driver that rowpost uses too."""
    return database_url(SETTINGS).replace("postgresql:", "postgresql+psycopg:", 1)
