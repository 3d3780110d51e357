"""Images: upload gateway, privacy pipeline, API with live progress."""
