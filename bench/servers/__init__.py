"""Servers that stand for models in measurements."""
