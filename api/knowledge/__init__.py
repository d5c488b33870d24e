"""Datasets, documents, retrieval and memories."""
