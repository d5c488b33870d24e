"""Rate limits, idempotency keys and timeouts around model calls."""
