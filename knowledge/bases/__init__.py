"""Knowledge bases: ingestion of documents and search."""
