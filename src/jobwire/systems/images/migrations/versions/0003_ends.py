"""Records are counted and listed by the time of their end."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the index."""
    op.create_index("images_by_end", "images", ["ended_at"])
