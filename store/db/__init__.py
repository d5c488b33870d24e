"""The connection pool, transactions, and how statements are compiled, sent and pruned."""
