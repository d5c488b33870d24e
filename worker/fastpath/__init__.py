"""Optional parts that exist only for speed. Each has a switch, and none changes a result."""
