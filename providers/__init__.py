"""The outside world: models, retrieval, sandboxes. One module per kind of service."""
