"""The same small web app, before and after the migration to jobs."""
