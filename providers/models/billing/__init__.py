"""Prices, usage and budgets around model calls."""
