"""Deleted records keep nothing of their image, and when that was done."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_BLANK = """
UPDATE images SET filename = '', sha256 = NULL, etag = NULL, file_size = NULL, content_type = NULL,
    original_width = NULL, original_height = NULL, processed_width = NULL, processed_height = NULL,
    error_code = NULL, error_message = NULL
WHERE status = 'deleted'
"""


def upgrade() -> None:
    """Blank the records that were deleted by an earlier version."""
    op.add_column("images", sa.Column("erased_at", sa.DateTime(timezone=True)))
    op.execute(_BLANK)
    op.create_index("images_by_erasure", "images", ["status", "erased_at"])
