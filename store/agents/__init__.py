"""Canvases, versions, conversations and webhooks."""
