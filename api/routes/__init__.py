"""What can be asked of us, by subject."""
