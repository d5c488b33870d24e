"""Commands for operators: tokens, budgets, database, knowledge bases, memories, MCP servers, secrets, benchmark."""
