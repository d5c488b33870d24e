"""Knowledge bases, documents, chunks and memories."""
