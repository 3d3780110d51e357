"""Records belong to a tenant; a record that the reconciler ended can still get its result."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Records of earlier versions belong to the default tenant."""
    op.add_column(
        "images", sa.Column("tenant", sa.String(64), nullable=False, server_default="default")
    )
    op.add_column(
        "images",
        sa.Column("reconciled", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    op.create_index("images_by_tenant", "images", ["tenant", "created_at", "image_id"])
