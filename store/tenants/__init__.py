"""Tenants, model accounts, budgets, idempotency keys and uploads."""
