"""Easel as an MCP server: agents as tools of MCP clients."""
