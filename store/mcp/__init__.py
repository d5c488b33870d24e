"""MCP servers, and agents that are offered as tools."""
