"""The tables of vendors and model families, and the accounts of tenants."""
