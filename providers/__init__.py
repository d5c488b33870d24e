"""Clients of external services: models, HTTP, retrieval, databases, MCP, mail and sandboxes."""
