"""Texts: templates, splitting, and extraction from files and web pages."""
