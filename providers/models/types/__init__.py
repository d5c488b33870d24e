"""What callers of models see: messages, answers, vectors, rate limits."""
