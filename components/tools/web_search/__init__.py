"""Tools that search and read the web."""
