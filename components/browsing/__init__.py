"""A browser that a model drives: what it is told, what it may do, and the Chromium that does it."""
