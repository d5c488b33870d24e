"""Caches of a worker process."""
