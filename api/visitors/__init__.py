"""What visitors of a share see: what its replies and frames leave out, and which answers to forms it accepts."""
