"""The command line: how people and scripts reach Easel."""

import gc

# Imports make a million objects that stay; with the usual threshold the collector looks at them again and again, and
# `easel run` answers 0.25 s later.
gc.set_threshold(100_000, 50, 50)
