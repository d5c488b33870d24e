"""What exists only for speed."""
