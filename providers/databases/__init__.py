"""Databases that canvases query, each session in a process of its own."""
