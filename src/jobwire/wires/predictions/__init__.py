"""Predictions: the photo bot whose database is a bucket."""
