"""Tools that search publications."""
