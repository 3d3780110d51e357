"""What it costs, beside the peers of the field; `python -m bench`."""
