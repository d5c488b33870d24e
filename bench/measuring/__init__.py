"""Counting proxies and protocol parsers, processor time, and formatting of figures, for the scripts."""
