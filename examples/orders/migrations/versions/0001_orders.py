"""The tables of orders and invoices."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "web_order",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("product", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "web_invoice",
        sa.Column("order_id", sa.Integer(), nullable=False),
        sa.Column("text", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["order_id"], ["web_order.id"]),
        sa.PrimaryKeyConstraint("order_id"),
    )


def downgrade() -> None:
    op.drop_table("web_invoice")
    op.drop_table("web_order")
