"""Email: messages and the record of their delivery."""
