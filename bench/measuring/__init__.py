"""Counters of statements, bytes and processor time."""
