"""A browser page with live events, and the app that serves it."""
