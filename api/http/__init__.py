"""HTTP itself: authentication, errors, request bodies, pages of lists, idempotency keys, uploads."""
