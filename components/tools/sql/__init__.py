"""ExeSQL: statements of canvases, checked before a database sees them."""
