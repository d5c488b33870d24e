"""One attempt at an activation, from its claim to its report."""
