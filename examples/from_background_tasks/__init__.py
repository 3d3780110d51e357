"""The same small web app, before and after the move to jobs."""
