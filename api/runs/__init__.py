"""Routes of runs: completions, event streams, OpenAI-compatible routes, cancel, budgets and share links."""
