"""Replacements that break the product on purpose; each must turn a named test red.

The files are described in `replacements.py`; `make mutate` applies them to copies of `src`.
"""
