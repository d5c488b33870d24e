"""Memories: saving conversations, extraction of facts by a model, and search."""
