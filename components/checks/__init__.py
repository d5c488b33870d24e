"""What a canvas must satisfy before it runs: models, sources, outputs, parameters."""
