"""Recorded runs as test cases: `easel record`, `easel replay`, and the pytest plugin."""
