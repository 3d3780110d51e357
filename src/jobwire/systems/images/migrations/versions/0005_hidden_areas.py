"""Records have the number of hidden areas."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """It is unknown for earlier images."""
    op.add_column("images", sa.Column("hidden_areas", sa.Integer))
