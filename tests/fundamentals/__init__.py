"""A tour of the product: one idea per test. Start with `test_jobs.py`."""
