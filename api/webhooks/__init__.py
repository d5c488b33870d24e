"""Incoming webhooks: security, payload, reply and the trace of a test call."""
