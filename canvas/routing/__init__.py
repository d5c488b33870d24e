"""Routing: which nodes run next (`decide`), and what a decision writes."""
