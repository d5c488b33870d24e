"""Measurements on real processes: `python -m bench.cancel`."""
