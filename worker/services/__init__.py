"""What nodes of a tenant can reach: models, MCP servers, speech."""
