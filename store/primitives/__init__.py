"""Ids, JSON, encryption, weeks and database errors."""
