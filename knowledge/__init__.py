"""Easel's own knowledge bases and memories: documents become chunks, chunks an index, and searches read the index."""
