"""HTTP basics: errors, replies, query parameters, paging, and work that outlives its request."""
