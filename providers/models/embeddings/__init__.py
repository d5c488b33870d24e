"""Embedding and reranking models."""
