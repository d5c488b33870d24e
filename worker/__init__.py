"""Runs nodes and reports."""
