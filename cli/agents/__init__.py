"""Commands for canvases: validate, import, export, publish."""
