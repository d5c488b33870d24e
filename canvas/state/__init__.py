"""The state of a run: activations, scopes, order keys, checkpoints."""
