"""Recorded cases held against what this executor does: load, play, compare, report (`easel conformance DIR...`)."""
