"""Runs and events as readers see them."""
