"""Texts: templates, and what is read from files and pages."""
