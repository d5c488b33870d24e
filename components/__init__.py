"""What nodes do: one file per component, one function each."""
