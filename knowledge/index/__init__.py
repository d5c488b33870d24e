"""The in-memory index of chunks: tokenizer, index and cache."""
