"""The rows of a run: its state, activations, reports, values, events and message streams."""
