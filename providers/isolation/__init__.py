"""Child processes with limits, and separate threads, for work on untrusted data."""
