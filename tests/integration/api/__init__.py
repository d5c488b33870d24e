"""One server for all of these tests: it ends behind the last of them, and its connections with it."""
