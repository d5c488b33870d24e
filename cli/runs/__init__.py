"""Commands for runs: run, resume, start, cancel, show, events, explain."""
