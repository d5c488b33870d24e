"""Routes of runs: completions, events, OpenAI-compatible routes, cancel, budgets and share links of agents."""
