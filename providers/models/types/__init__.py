"""The types that callers of models use: requests, deltas, usage, embeddings, rate limits."""
