"""One engine for all of these tests: it ends behind the last of them."""
