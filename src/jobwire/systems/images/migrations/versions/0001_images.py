"""The records of images."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "images",
        sa.Column("image_id", sa.String(64), primary_key=True),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("filename", sa.String(255), nullable=False, server_default=""),
        sa.Column("upload_type", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("storage_key", sa.String(255), nullable=False),
        sa.Column("sha256", sa.String(64)),
        sa.Column("etag", sa.String(128)),
        sa.Column("file_size", sa.BigInteger),
        sa.Column("content_type", sa.String(64)),
        sa.Column("original_width", sa.Integer),
        sa.Column("original_height", sa.Integer),
        sa.Column("processed_width", sa.Integer),
        sa.Column("processed_height", sa.Integer),
        sa.Column("error_code", sa.String(64)),
        sa.Column("error_message", sa.Text),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
    )
    op.create_index("images_by_status", "images", ["status", "created_at"])
