"""Connections, transactions and statements."""
