"""Commands for runs: run, start, cancel, show, follow, explain."""
