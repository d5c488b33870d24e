"""Callbacks: what is sent when a run ends or waits, how it is signed, when it is sent again, and who sends it."""
