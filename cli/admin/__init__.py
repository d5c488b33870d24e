"""Commands for operators: tenants, tokens, budgets, databases, knowledge, MCP servers."""
