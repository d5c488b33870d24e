"""Clients of embedding and reranking models."""
