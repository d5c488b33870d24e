"""MCP: routes of a tenant's MCP servers, and agents as tools for MCP clients."""
