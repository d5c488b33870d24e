"""Routes of datasets, documents, retrieval and memories."""
