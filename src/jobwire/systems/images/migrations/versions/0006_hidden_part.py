"""Records have the part of the picture that is hidden."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """It is unknown for earlier images."""
    op.add_column("images", sa.Column("hidden_part", sa.Float))
