"""The component Browser: a model drives a Chromium, with actions on pages, uploads and downloads."""
