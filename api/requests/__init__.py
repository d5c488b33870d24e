"""What routes share about a request: the process's context, the caller, bodies, uploads and idempotency keys."""
