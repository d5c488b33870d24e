"""Sessions with MCP servers."""
