"""Runs: chat completions, the event stream, OpenAI-compatible routes, cancel, budgets and share links."""
