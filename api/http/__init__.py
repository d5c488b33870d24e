"""HTTP basics: authentication, errors, request bodies, paging, idempotency keys, uploads, replies."""
