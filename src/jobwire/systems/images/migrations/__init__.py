"""The versions of the database of image records, applied by alembic."""
