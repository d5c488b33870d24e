"""One engine for all of these tests: it ends after the last of them."""
