"""Canvases, versions, conversations and runs that webhooks started."""
