"""One `easel up` for all tests that do not change it: it ends after the last of them."""
