"""Jinja templates in a sandbox with limits."""
