"""Checks of a canvas before it runs: its models, sources, outputs and parameters."""
