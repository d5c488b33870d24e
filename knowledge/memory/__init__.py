"""Memories: what a model extracts from conversations."""
