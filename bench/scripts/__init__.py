"""Measurements that are scripts: `python -m bench.scripts.NAME`."""
