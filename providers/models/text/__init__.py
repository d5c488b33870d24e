"""Texts of models: what fits into a context window, what is cut from an answer."""
