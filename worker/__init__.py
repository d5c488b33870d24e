"""Executes nodes and reports their outcomes."""
