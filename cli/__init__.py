"""The command line `easel`, for people and scripts."""

import gc

# Imports create a million objects that stay. With the default threshold the garbage collector scans them repeatedly,
# and `easel run` answers 0.25 s later.
gc.set_threshold(100_000, 50, 50)
